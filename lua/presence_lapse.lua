-- presence_lapse: tell of those who have lapsed.
--
-- INCLUDE time ledger mutation lapsing
-- KEYS presence  sortedset  actors by the time until which they are here
-- KEYS facts     hash       by actor: `<since> <last seen> <about>`, times in microseconds
--
-- RETURNS `0`, or `more` when it has to be called again since many have lapsed
-- FAILS   CLOSED, STALE, WRONGTYPE
local presence, facts = KEYS[4], KEYS[5]

return done(lapse(presence, facts, microseconds()) and 'more' or '0')
