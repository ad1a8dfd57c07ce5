-- set_pop: take a random member out of a set; of many racing takers exactly one gets it.
--
-- INCLUDE time ledger mutation
-- KEYS set  set  where
--
-- RETURNS `<version> <the member>`, or `0 ` when the set is empty
-- FAILS   CLOSED, STALE, WRONGTYPE
local key = KEYS[4]
local member = redis.call('SPOP', key)
if not member then return '0 ' end
return changed('spop', key, '0', member)
