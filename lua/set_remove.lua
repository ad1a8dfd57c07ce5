-- set_remove: remove members from a set.
--
-- INCLUDE time ledger mutation header keeping
-- KEYS set  set  the set
-- ARGV members...  blob  the encoded values
--
-- RETURNS `<version> <number removed>`, version 0 if none existed
-- FAILS   CLOSED, STALE, WRONGTYPE
local key, removed = KEYS[4], 0
if is_cold(1) then return 'COLD' end
for i = 6, #ARGV do
  removed = removed + redis.call('SREM', key, ARGV[i])
  keep_element(1, 'set', ARGV[i])
end
if removed == 0 then return '0 0' end
return changed('srem', key, '0', whole(removed))
