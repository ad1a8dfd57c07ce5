-- limit_bucket_take: take tokens from a bucket that refills over time, if it has enough.
--
-- INCLUDE time ledger mutation bucket names naming
-- KEYS bucket  string  see include/bucket.lua
-- ARGV burst  int  tokens in a full bucket
-- ARGV unit   int  parts of a token
-- ARGV rate   int  parts added each microsecond
-- ARGV cost   int  requested tokens
--
-- RETURNS `<1|0> <tokens left> <microseconds until it has so many>`
-- FAILS   CLOSED, STALE, WRONGTYPE
local bucket = KEYS[4]
local burst, unit, rate, cost = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])

local missing, now, is_new = missing_from(bucket, unit, rate)
local full, wanted = burst * unit, missing + cost * unit
if wanted > full then
  local left = math.max(0, math.floor((full - missing) / unit))
  return '0 ' .. whole(left) .. ' ' .. whole(math.ceil((wanted - full) / rate))
end
local until_full_ms = math.ceil(wanted / rate / 1000) + 1
redis.call('SET', bucket, whole(now) .. ' ' .. whole(wanted) .. ' ' .. whole(unit), 'PX', whole(until_full_ms))
if is_new then created(bucket) end
return done('1 ' .. whole(math.floor((full - wanted) / unit)) .. ' 0')
