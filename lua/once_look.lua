-- once_look: the state of a piece of work.
--
-- INCLUDE time
-- KEYS once  hash  see once_begin
--
-- RETURNS `<none|running|done> <token> <attempt> <milliseconds left> <actor>`, or empty if it was never begun
-- FAILS   WRONGTYPE
local once = KEYS[1]

local held = redis.call('HMGET', once, 'state', 'until', 'token', 'attempt', 'actor')
local state, left = held[1], 0
if not state then return '' end
if state == 'running' then left = math.ceil((tonumber(held[2] or '0') - microseconds()) / 1000) end
if state == 'done' then left = redis.call('PTTL', once) end
if left <= 0 then state, left = 'none', 0 end
return state .. ' ' .. held[3] .. ' ' .. held[4] .. ' ' .. whole(left) .. ' ' .. held[5]
