-- once_forget: delete a stored result and the count of attempts, unless the work is running.
--
-- INCLUDE time ledger mutation
-- KEYS once  hash  see once_begin
--
-- RETURNS `1` if there was a result, else `0`
-- FAILS   CLOSED, STALE, WRONGTYPE
local once = KEYS[4]

local held = redis.call('HMGET', once, 'state', 'until')
local state, ends = held[1], held[2]
if not state or (state == 'running' and tonumber(ends) > microseconds()) then return '0' end
redis.call('DEL', once)
return done(state == 'done' and '1' or '0')
