-- limit_bucket_take: take tokens from buckets that refill over time, from each if it has enough.
--
-- Requests that one client makes at the same moment share one call; they are independent.
--
-- INCLUDE time ledger mutation bucket names naming refusing
-- KEYS buckets...   string  of each request: see include/bucket.lua
-- ARGV requests...  int     of each request: tokens in a full bucket, parts of a token, parts added each microsecond,
--                           requested tokens
--
-- RETURNS one line a request: `<1|0> <tokens left> <microseconds until it has so many>`, or `E <error>` if another client
--         has written to its key
-- FAILS   CLOSED, STALE
local BEFORE_FIRST_KEY, BEFORE_FIRST, ARGUMENTS = 3, 5, 4

local admits = false
local function take(bucket, burst, unit, rate, cost)
  local missing, now, is_new = missing_from(bucket, unit, rate)
  local full, wanted = burst * unit, missing + cost * unit
  if wanted > full then
    local left = math.max(0, math.floor((full - missing) / unit))
    return '0 ' .. whole(left) .. ' ' .. whole(math.ceil((wanted - full) / rate))
  end
  local until_full_ms = math.ceil(wanted / rate / 1000) + 1
  redis.call('SET', bucket, whole(now) .. ' ' .. whole(wanted) .. ' ' .. whole(unit), 'PX', whole(until_full_ms))
  if is_new then created(bucket) end
  admits = true
  return '1 ' .. whole(math.floor((full - wanted) / unit)) .. ' 0'
end

local replies = {}
for i = 1, #KEYS - BEFORE_FIRST_KEY do
  local at = BEFORE_FIRST + (i - 1) * ARGUMENTS
  local burst, unit, rate, cost = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  replies[i] = attempt(take, KEYS[BEFORE_FIRST_KEY + i], burst, unit, rate, cost)
end
local reply = table.concat(replies, '\n')
if admits then return done(reply) end
return reply
