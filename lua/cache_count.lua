-- cache_count: add to the counters of a cache.
--
-- INCLUDE time ledger mutation
-- KEYS stats  hash  the counts
-- ARGV pairs...  text  field, amount, field, amount, ...
--
-- RETURNS `ok`; counters expire after 90 days without use
-- FAILS   CLOSED, STALE, WRONGTYPE
local FORGOTTEN_AFTER_MS = '7776000000'
for i = 6, #ARGV, 2 do redis.call('HINCRBYFLOAT', KEYS[4], ARGV[i], ARGV[i + 1]) end
redis.call('PEXPIRE', KEYS[4], FORGOTTEN_AFTER_MS)
return done('ok')
