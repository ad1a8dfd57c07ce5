-- presence_beat: record a heartbeat of an actor, after announcing lapsed actors.
--
-- INCLUDE time ledger mutation packing lapsing
-- KEYS presence  sortedset  actors by the end of their presence
-- KEYS facts     hash       by actor: `<since> <last seen> <about>`, times in microseconds
-- ARGV ttl_ms   int   length of its presence without another heartbeat
-- ARGV about    blob  its role and info, encoded
--
-- RETURNS `<since>`, or `more` if it must be called again, since many have lapsed
-- FAILS   CLOSED, STALE, WRONGTYPE
local presence, facts = KEYS[4], KEYS[5]
local ttl_ms, about = ARGV[6], ARGV[7]

-- Kept so long that the next actor can still announce the lapsed ones.
local KEPT_MS = '777600000'

local now = microseconds()
if lapse(presence, facts, now) then return done('more') end
local known = redis.call('HGET', facts, actor)
local since = known and string.match(known, '^%d+')
if not since then
  since = whole(tick(1))
  announce(since, 'presence.join', announcement_key(presence, actor))
end
redis.call('ZADD', presence, whole(now + tonumber(ttl_ms) * 1000), actor)
redis.call('HSET', facts, actor, since .. ' ' .. whole(now) .. ' ' .. about)
redis.call('PEXPIRE', presence, KEPT_MS)
redis.call('PEXPIRE', facts, KEPT_MS)
return done(since)
