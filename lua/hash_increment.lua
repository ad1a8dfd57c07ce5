-- hash_increment: add to the whole number in a field of a hash.
--
-- INCLUDE time ledger mutation header keeping
-- KEYS hash  hash  the hash
-- ARGV field   text  name of the field
-- ARGV by      int   how much, negative to subtract
-- ARGV ttl_ms  int   new expiry of the hash in milliseconds; 0: unchanged
--
-- RETURNS `<version> <the new number>`
-- FAILS   CLOSED, STALE, WRONGTYPE; ERR if the field holds no 64-bit whole number or would exceed the range
local key, field, by, ttl_ms = KEYS[4], ARGV[6], ARGV[7], ARGV[8]
if is_cold(1) then return 'COLD' end
redis.call('HINCRBY', key, field, by)
-- Read back as text: a number reply would pass through a double and lose digits above 2^53.
local number = redis.call('HGET', key, field)
keep_element(1, 'hash', field, number)
return changed('hincrby', key, ttl_ms, number)
