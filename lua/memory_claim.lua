-- memory_claim: claim memories that wait for their vectors, so that no other client embeds them.
--
-- INCLUDE time
-- KEYS pending   zset  ids by the time from which they can be claimed, in milliseconds
-- ARGV most      int   most ids
-- ARGV lease_ms  int   length of the claim
--
-- RETURNS ids; no id but the milliseconds until the next are due, if others have them; empty if none wait
local pending, most, lease_ms = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local now = math.floor(microseconds() / 1000)
local ids = redis.call('ZRANGEBYSCORE', pending, '-inf', whole(now), 'LIMIT', 0, most)
for _, id in ipairs(ids) do redis.call('ZADD', pending, 'XX', whole(now + lease_ms), id) end
if #ids > 0 then return ids end
local first = redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2]
return first and { '', whole(tonumber(first) - now) } or {}
