-- plan_check: whether the same plan was kept, and how long ago.
--
-- INCLUDE time
-- KEYS duplicates  hash  `<id> <confidence> <method>` by digest
-- ARGV digest  text  what tells the same plan
--
-- RETURNS `<ms since> <id> <confidence> <method>`, or nothing
-- FAILS   WRONGTYPE
local duplicates, digest = KEYS[1], ARGV[1]
local known = redis.call('HGET', duplicates, digest)
if not known then return '' end
local since_us = microseconds() - tonumber(string.match(known, '^%d+'))
return whole(math.max(0, math.floor(since_us / 1000))) .. ' ' .. known
