-- limit_bucket_look: the number of tokens in a bucket.
--
-- INCLUDE time bucket
-- KEYS bucket  string  see include/bucket.lua
-- ARGV burst  int  tokens in a full bucket
-- ARGV unit   int  parts of a token
-- ARGV rate   int  parts added each microsecond
--
-- RETURNS `<tokens left> <microseconds until there is one>`
-- FAILS   WRONGTYPE
local bucket = KEYS[1]
local burst, unit, rate = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local missing = missing_from(bucket, unit, rate)
local room = burst * unit - missing
if room >= unit then return whole(math.floor(room / unit)) .. ' 0' end
return '0 ' .. whole(math.ceil((unit - room) / rate))
