-- hash_delete: remove fields of a hash.
--
-- INCLUDE time ledger mutation header keeping
-- KEYS hash  hash  the hash
-- ARGV fields...  text  names of the fields
--
-- RETURNS `<version> <number removed>`, version 0 if no field existed
-- FAILS   CLOSED, STALE, WRONGTYPE
local key, removed = KEYS[4], 0
if is_cold(1) then return 'COLD' end
for i = 6, #ARGV do
  removed = removed + redis.call('HDEL', key, ARGV[i])
  keep_element(1, 'hash', ARGV[i])
end
if removed == 0 then return '0 0' end
return changed('hdel', key, '0', whole(removed))
