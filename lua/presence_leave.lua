-- presence_leave: remove an actor, after announcing lapsed actors.
--
-- INCLUDE time ledger mutation packing lapsing
-- KEYS presence  sortedset  actors by the end of their presence
-- KEYS facts     hash       by actor: `<since> <last seen> <about>`, times in microseconds
--
-- RETURNS `1`, `0` if it was not present, or `more` if it must be called again, since many have lapsed
-- FAILS   CLOSED, STALE, WRONGTYPE
local presence, facts = KEYS[4], KEYS[5]

if lapse(presence, facts, microseconds()) then return done('more') end
if redis.call('ZREM', presence, actor) == 0 then return done('0') end
redis.call('HDEL', facts, actor)
announce(whole(tick(1)), 'presence.leave', announcement_key(presence, actor))
return done('1')
