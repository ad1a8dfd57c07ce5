-- set_pop: take a random member out of a set; of many racing takers exactly one gets it.
--
-- INCLUDE time ledger mutation header keeping
-- KEYS set  set  where
--
-- RETURNS `<version> <the member>`, or `0 ` when the set is empty
-- FAILS   CLOSED, STALE, WRONGTYPE
local key = KEYS[4]
if is_cold(1) then return 'COLD' end
local member = redis.call('SPOP', key)
if not member then return '0 ' end
keep_element(1, 'set', member)
return changed('spop', key, '0', member)
