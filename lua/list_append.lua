-- list_append: put a member at the end of a list and cut the list to its newest members.
--
-- INCLUDE time ledger mutation
-- KEYS list  list  where to append
-- ARGV member      blob  the coded value
-- ARGV max_length  int   keep this many of the newest; 0 all
-- ARGV ttl_ms      int   prolong the list's expiry to this; 0 leaves it
--
-- RETURNS `<version> <length of the list>`
-- FAILS   CLOSED, STALE, WRONGTYPE
local key, member, max_length, ttl_ms = KEYS[4], ARGV[6], tonumber(ARGV[7]), ARGV[8]
local length = redis.call('RPUSH', key, member)
if max_length > 0 and length > max_length then
  redis.call('LTRIM', key, whole(-max_length), '-1')
  length = max_length
end
return changed('append', key, ttl_ms, whole(length))
