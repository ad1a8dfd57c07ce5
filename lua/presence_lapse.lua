-- presence_lapse: announce lapsed actors.
--
-- INCLUDE time ledger mutation packing lapsing
-- KEYS presence  sortedset  actors by the end of their presence
-- KEYS facts     hash       by actor: `<since> <last seen> <about>`, times in microseconds
--
-- RETURNS `0`, or `more` if it must be called again, since many have lapsed
-- FAILS   CLOSED, STALE, WRONGTYPE
local presence, facts = KEYS[4], KEYS[5]

return done(lapse(presence, facts, microseconds()) and 'more' or '0')
