-- barrier_leave: go away from a barrier, unless it has opened.
--
-- INCLUDE time ledger mutation
-- KEYS barrier  sortedset  who has come, `<version> <parties> <waiter>`, by the end of its lease
-- KEYS opened   hash       who was let through, by waiter: `<generation> <position>`
-- ARGV waiter  text  who leaves
--
-- RETURNS `opened <generation> <position>`, or `left <how many still wait>`
-- FAILS   CLOSED, STALE, WRONGTYPE
local barrier, opened = KEYS[4], KEYS[5]
local waiter = ARGV[6]

local through = redis.call('HGET', opened, waiter)
if through then
  redis.call('HDEL', opened, waiter)
  return done('opened ' .. through)
end
redis.call('ZREMRANGEBYSCORE', barrier, '-inf', whole(microseconds()))
for _, arrival in ipairs(redis.call('ZRANGE', barrier, 0, -1)) do
  if string.match(arrival, '^%d+ %d+ (.*)$') == waiter then redis.call('ZREM', barrier, arrival) end
end
return done('left ' .. whole(redis.call('ZCARD', barrier)))
