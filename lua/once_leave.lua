-- once_leave: neither wait nor run under this name any more; a turn that was given to it goes on to the next.
--
-- INCLUDE time ledger mutation waiters
-- KEYS once     hash       see once_begin
-- KEYS waiters  sortedset  who waits for it
-- ARGV name  text  who leaves
--
-- RETURNS `1`
-- FAILS   CLOSED, STALE, WRONGTYPE
local once, waiters = KEYS[4], KEYS[5]
local name = ARGV[6]

local was_first = redis.call('ZRANGE', waiters, 0, 0)[1] == name
redis.call('ZREM', waiters, name)
-- It may have left in the moment in which the work became its own.
local held = redis.call('HMGET', once, 'state', 'name')
local was_running = held[1] == 'running' and held[2] == name
if was_running then
  redis.call('HSET', once, 'state', 'free')
  redis.call('HDEL', once, 'until', 'name')
end
if was_first or was_running then call_first(waiters) end
return done('1')
