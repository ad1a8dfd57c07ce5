-- memory_claim: take memories that wait for their vectors, so that nobody else makes these meanwhile.
--
-- INCLUDE time
-- KEYS pending   zset  ids by when they may be taken, in milliseconds
-- ARGV most      int   take so many at most
-- ARGV lease_ms  int   for so long
--
-- RETURNS ids; none and the milliseconds until there will be some, when others have them; nothing when none wait
local pending, most, lease_ms = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local now = math.floor(microseconds() / 1000)
local ids = redis.call('ZRANGEBYSCORE', pending, '-inf', whole(now), 'LIMIT', 0, most)
for _, id in ipairs(ids) do redis.call('ZADD', pending, 'XX', whole(now + lease_ms), id) end
if #ids > 0 then return ids end
local first = redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2]
return first and { '', whole(tonumber(first) - now) } or {}
