-- barrier_stay: renew an entry at a barrier, or pass if it has opened.
--
-- INCLUDE time ledger mutation
-- KEYS barrier  sortedset  arrived parties, `<version> <parties> <waiter>`, by the end of its lease
-- KEYS opened   hash       parties that have passed, by waiter: `<generation> <position>`
-- ARGV waiter    text  the waiting party
-- ARGV arrival   text  its entry
-- ARGV lease_ms  int   lease of its entry from now on
--
-- RETURNS `opened <generation> <position>`, `waiting <arrival>`, or `gone` if its lease had ended
-- FAILS   CLOSED, STALE, WRONGTYPE
local barrier, opened = KEYS[4], KEYS[5]
local waiter, arrival, lease_ms = ARGV[6], ARGV[7], ARGV[8]

local through = redis.call('HGET', opened, waiter)
if through then
  redis.call('HDEL', opened, waiter)
  return done('opened ' .. through)
end
if not redis.call('ZSCORE', barrier, arrival) then return 'gone' end
redis.call('ZADD', barrier, whole(microseconds() + tonumber(lease_ms) * 1000), arrival)
redis.call('PEXPIRE', barrier, whole(math.max(redis.call('PTTL', barrier), tonumber(lease_ms))))
return done('waiting ' .. arrival)
