-- barrier_arrive: come to a barrier; the last to come opens it and calls all the others.
--
-- INCLUDE time ledger mutation waiters
-- KEYS barrier  sortedset  who has come, `<version> <parties> <waiter>`, by the end of its lease
-- KEYS opened   hash       who was let through, by waiter: `<generation> <position>`
-- ARGV waiter    text  who comes
-- ARGV parties   int   how many have to come
-- ARGV lease_ms  int   for how long it counts unless it says so again
--
-- RETURNS `opened <generation> <position>`, `waiting <arrival>`, or `parties <n>` when others wait for so many
-- FAILS   CLOSED, STALE, WRONGTYPE
local barrier, opened = KEYS[4], KEYS[5]
local waiter, parties, lease_ms = ARGV[6], ARGV[7], ARGV[8]

-- So long whoever was let through may take to notice.
local OPENED_LIVES_MS = '600000'

local now = microseconds()
redis.call('ZREMRANGEBYSCORE', barrier, '-inf', whole(now))
local another = redis.call('ZRANGE', barrier, 0, 0)[1]
local agreed = another and string.match(another, '^%d+ (%d+) ')
if agreed and agreed ~= parties then return 'parties ' .. agreed end

local version = whole(tick(1))
local arrival = version .. ' ' .. parties .. ' ' .. waiter
redis.call('ZADD', barrier, whole(now + tonumber(lease_ms) * 1000), arrival)
if redis.call('ZCARD', barrier) < tonumber(parties) then
  local life_ms = math.max(redis.call('PTTL', barrier), tonumber(lease_ms))
  redis.call('PEXPIRE', barrier, whole(life_ms))
  return done('waiting ' .. arrival)
end

-- Versions have the same number of digits, so this is the order in which they came.
local arrivals = redis.call('ZRANGE', barrier, 0, -1)
table.sort(arrivals)
redis.call('DEL', barrier)
for i = 1, #arrivals - 1 do
  local other = string.match(arrivals[i], '^%d+ %d+ (.*)$')
  redis.call('HSET', opened, other, version .. ' ' .. whole(i - 1))
  call_waiter(other)
end
redis.call('PEXPIRE', opened, OPENED_LIVES_MS)
return done('opened ' .. version .. ' ' .. whole(#arrivals - 1))
