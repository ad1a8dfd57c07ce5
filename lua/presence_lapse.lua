-- presence_lapse: tell of those who have lapsed.
--
-- INCLUDE time ledger mutation lapsing
-- KEYS presence  sortedset  actors by the time until which they are here
-- KEYS facts     hash       by actor: `<since> <last seen> <about>`, times in microseconds
--
-- RETURNS `0`, or `more` when it has to be called again since many have lapsed
-- FAILS   CLOSED, STALE, WRONGTYPE
local presence, facts = KEYS[4], KEYS[5]

local gone = lapse(presence, microseconds())
if #gone > 0 then redis.call('HDEL', facts, unpack(gone)) end
return done(#gone == MOST_LAPSES and 'more' or '0')
