-- lease_renew: renew a lease that has not ended.
--
-- INCLUDE time ledger mutation
-- KEYS holders  zset  as lease_acquire
-- ARGV holder    text  the member that lease_acquire added
-- ARGV lease_ms  int   lease from now on
--
-- RETURNS `kept`; `gone` if the lease has ended
-- FAILS   CLOSED, STALE
local holders, holder, lease_ms = KEYS[4], ARGV[6], tonumber(ARGV[7])
local ends = redis.call('ZSCORE', holders, holder)
if not ends or tonumber(ends) <= microseconds() then return 'gone' end

redis.call('ZADD', holders, whole(microseconds() + lease_ms * 1000), holder)
local latest = tonumber(redis.call('ZRANGE', holders, -1, -1, 'WITHSCORES')[2])
redis.call('PEXPIRE', holders, whole((latest - microseconds()) / 1000 + 1000))
return done('kept')
