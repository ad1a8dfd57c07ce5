-- counter_increment: add to a counter, which starts at zero.
--
-- INCLUDE time ledger mutation header keeping
-- KEYS counter  string  a whole number as text
-- ARGV by      int  how much, negative to subtract
-- ARGV ttl_ms  int  new expiry of the counter in milliseconds; 0: unchanged
--
-- RETURNS `<version> <the new number>`
-- FAILS   CLOSED, STALE, WRONGTYPE; ERR if it holds no 64-bit whole number or would exceed the range
local key, by, ttl_ms = KEYS[4], ARGV[6], ARGV[7]
if is_cold(1) then return 'COLD' end
redis.call('INCRBY', key, by)
-- Read back as text: a number reply would pass through a double and lose digits above 2^53.
return changed('incr', key, ttl_ms, redis.call('GET', key))
