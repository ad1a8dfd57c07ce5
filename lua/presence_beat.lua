-- presence_beat: say that an actor is here, after telling of those who have lapsed.
--
-- INCLUDE time ledger mutation lapsing
-- KEYS presence  sortedset  actors by the time until which they are here
-- KEYS facts     hash       by actor: `<since> <last seen> <about>`, times in microseconds
-- ARGV ttl_ms   int   for how long it is here unless it says so again
-- ARGV about    blob  its role and more, coded
--
-- RETURNS `<since>`, or `more` when it has to be called again since many have lapsed
-- FAILS   CLOSED, STALE, WRONGTYPE
local presence, facts = KEYS[4], KEYS[5]
local ttl_ms, about = ARGV[6], ARGV[7]

-- Kept so long that whoever comes next can still tell of those who have lapsed.
local KEPT_MS = '777600000'

local now = microseconds()
if lapse(presence, facts, now) then return done('more') end
local known = redis.call('HGET', facts, actor)
local since = known and string.match(known, '^%d+')
if not since then
  since = whole(tick(1))
  announce(since, 'presence.join', told_under(presence, actor))
end
redis.call('ZADD', presence, whole(now + tonumber(ttl_ms) * 1000), actor)
redis.call('HSET', facts, actor, since .. ' ' .. whole(now) .. ' ' .. about)
redis.call('PEXPIRE', presence, KEPT_MS)
redis.call('PEXPIRE', facts, KEPT_MS)
return done(since)
