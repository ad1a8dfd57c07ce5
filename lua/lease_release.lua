-- lease_release: release a lease, and notify the next waiter.
--
-- INCLUDE time ledger mutation waiters turns
-- KEYS holders  zset  as lease_acquire
-- KEYS waiters  zset  as lease_acquire
-- ARGV holder  text  the member that lease_acquire added
--
-- RETURNS `released`; `gone` if the lease had ended before
-- FAILS   CLOSED, STALE
local holders, waiters, holder = KEYS[4], KEYS[5], ARGV[6]
local ends = redis.call('ZSCORE', holders, holder)
if not ends then return 'gone' end
local is_in_time = tonumber(ends) > microseconds()
redis.call('ZREM', holders, holder)
call_next(waiters)
return done(is_in_time and 'released' or 'gone')
