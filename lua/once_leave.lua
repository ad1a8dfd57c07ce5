-- once_leave: remove a name as waiter and runner; pass its turn to the next waiter.
--
-- INCLUDE time ledger mutation waiters
-- KEYS once     hash       see once_begin
-- KEYS waiters  sortedset  its waiters
-- ARGV name  text  the leaving caller
--
-- RETURNS `1`
-- FAILS   CLOSED, STALE, WRONGTYPE
local once, waiters = KEYS[4], KEYS[5]
local name = ARGV[6]

local was_first = redis.call('ZRANGE', waiters, 0, 0)[1] == name
redis.call('ZREM', waiters, name)
-- It may leave just when the work was granted to it.
local held = redis.call('HMGET', once, 'state', 'name')
local was_running = held[1] == 'running' and held[2] == name
if was_running then
  redis.call('HSET', once, 'state', 'free')
  redis.call('HDEL', once, 'until', 'name')
end
if was_first or was_running then call_first(waiters) end
return done('1')
