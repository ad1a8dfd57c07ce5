-- barrier_leave: leave a barrier, unless it has opened.
--
-- INCLUDE time ledger mutation
-- KEYS barrier  sortedset  arrived parties, `<version> <parties> <waiter>`, by the end of its lease
-- KEYS opened   hash       parties that have passed, by waiter: `<generation> <position>`
-- ARGV waiter  text  the leaving party
--
-- RETURNS `opened <generation> <position>`, or `left <number of parties that still wait>`
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
