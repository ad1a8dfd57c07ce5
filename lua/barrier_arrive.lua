-- barrier_arrive: arrive at a barrier; the last party opens it and notifies the others.
--
-- INCLUDE time ledger mutation waiters names naming
-- KEYS barrier  sortedset  arrived parties, `<version> <parties> <waiter>`, by the end of its lease
-- KEYS opened   hash       parties that have passed, by waiter: `<generation> <position>`
-- ARGV waiter    text  the arriving party
-- ARGV parties   int   number of parties that must arrive
-- ARGV lease_ms  int   lease of its entry
--
-- RETURNS `opened <generation> <position>`, `waiting <arrival>`, or `parties <n>` if others wait for so many parties
-- FAILS   CLOSED, STALE, WRONGTYPE
local barrier, opened = KEYS[4], KEYS[5]
local waiter, parties, lease_ms = ARGV[6], ARGV[7], ARGV[8]

-- Waiters must notice within this time that they have passed.
local OPENED_LIVES_MS = '600000'

local now = microseconds()
redis.call('ZREMRANGEBYSCORE', barrier, '-inf', whole(now))
local another = redis.call('ZRANGE', barrier, 0, 0)[1]
local agreed = another and string.match(another, '^%d+ (%d+) ')
if agreed and agreed ~= parties then return 'parties ' .. agreed end

local version = whole(tick(1))
local arrival = version .. ' ' .. parties .. ' ' .. waiter
redis.call('ZADD', barrier, whole(now + tonumber(lease_ms) * 1000), arrival)
if not another then created(barrier) end
if redis.call('ZCARD', barrier) < tonumber(parties) then
  local life_ms = math.max(redis.call('PTTL', barrier), tonumber(lease_ms))
  redis.call('PEXPIRE', barrier, whole(life_ms))
  return done('waiting ' .. arrival)
end

-- Versions have the same number of digits, so this is the order of arrival.
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
