-- set_pop: remove and return a random member of a set; one of several racing callers gets it.
--
-- INCLUDE time ledger mutation header keeping changed
-- KEYS set  set  the set
--
-- RETURNS `<version> <the member>`, or `0 ` if the set is empty
-- FAILS   CLOSED, STALE, WRONGTYPE
local key = KEYS[4]
if is_cold(1) then return 'COLD' end
local member = redis.call('SPOP', key)
if not member then return '0 ' end
keep_element(1, 'set', member)
return changed('spop', key, '0', member)
