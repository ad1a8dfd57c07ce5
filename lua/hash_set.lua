-- hash_set: set fields of a hash.
--
-- INCLUDE time ledger mutation header keeping
-- KEYS hash  hash  the hash
-- ARGV ttl_ms   int   new expiry of the hash in milliseconds; 0: unchanged
-- ARGV pairs... blob  field, encoded value, field, encoded value, ...
--
-- RETURNS `<version> <number of new fields>`
-- FAILS   CLOSED, STALE, WRONGTYPE
local key, ttl_ms = KEYS[4], ARGV[6]
if is_cold(1) then return 'COLD' end
local added = 0
for i = 7, #ARGV, 2 do
  added = added + redis.call('HSET', key, ARGV[i], ARGV[i + 1])
  keep_element(1, 'hash', ARGV[i], ARGV[i + 1])
end
return changed('hset', key, ttl_ms, whole(added))
