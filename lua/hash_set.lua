-- hash_set: set fields of a hash.
--
-- INCLUDE time ledger mutation header keeping
-- KEYS hash  hash  where
-- ARGV ttl_ms   int   prolong the hash's expiry to this; 0 leaves it
-- ARGV pairs... blob  field, coded value, field, coded value, ...
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
