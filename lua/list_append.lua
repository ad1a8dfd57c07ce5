-- list_append: append a member to a list and trim the list to its newest members.
--
-- INCLUDE time ledger mutation header keeping
-- KEYS list  list  the list
-- ARGV member      blob  the encoded value
-- ARGV max_length  int   keep this many of the newest; 0: all
-- ARGV ttl_ms      int   new expiry of the list in milliseconds; 0: unchanged
--
-- RETURNS `<version> <length of the list>`; COLD if it may be in the durable tier alone
-- FAILS   CLOSED, STALE, WRONGTYPE
local key, member, max_length, ttl_ms = KEYS[4], ARGV[6], tonumber(ARGV[7]), ARGV[8]
if is_cold(1) then return 'COLD' end
local length = redis.call('RPUSH', key, member)
if max_length > 0 and length > max_length then
  redis.call('LTRIM', key, whole(-max_length), '-1')
  length = max_length
end
keep_element(1, 'list', nil, member)
return changed('append', key, ttl_ms, whole(length))
