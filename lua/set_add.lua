-- set_add: add members to a set.
--
-- INCLUDE time ledger mutation header keeping
-- KEYS set  set  where
-- ARGV ttl_ms      int   prolong the set's expiry to this; 0 leaves it
-- ARGV members...  blob  the coded values
--
-- RETURNS `<version> <number of new members>`, version 0 when nothing has changed, nor how long it lasts
-- FAILS   CLOSED, STALE, WRONGTYPE
local key, ttl_ms, added = KEYS[4], ARGV[6], 0
if is_cold(1) then return 'COLD' end
for i = 7, #ARGV do
  added = added + redis.call('SADD', key, ARGV[i])
  keep_element(1, 'set', ARGV[i], '')
end
if added == 0 then
  if ttl_ms ~= '0' then return changed('expire', key, ttl_ms, '0') end
  return begins_to_last(1) and changed('sadd', key, '0', '0') or done('0 0')
end
return changed('sadd', key, ttl_ms, whole(added))
