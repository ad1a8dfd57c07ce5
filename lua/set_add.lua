-- set_add: add members to a set.
--
-- INCLUDE time ledger mutation header keeping
-- KEYS set  set  the set
-- ARGV ttl_ms      int   new expiry of the set in milliseconds; 0: unchanged
-- ARGV members...  blob  the encoded values
--
-- RETURNS `<version> <number of new members>`, version 0 if nothing has changed, not even its expiry
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
