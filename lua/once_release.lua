-- once_release: release failed work, and notify the next waiter.
--
-- INCLUDE time ledger mutation waiters running
-- KEYS once     hash       see once_begin
-- KEYS waiters  sortedset  its waiters
-- ARGV token   int  token of the runner
-- ARGV ttl_ms  int  how long its attempts stay counted
--
-- RETURNS `1`, or `0` if the runner has lost the claim
-- FAILS   CLOSED, STALE, WRONGTYPE
local once, waiters = KEYS[4], KEYS[5]
local token, ttl_ms = ARGV[6], ARGV[7]

if not runs(once, token) then return '0' end
redis.call('HSET', once, 'state', 'free')
redis.call('HDEL', once, 'until', 'name')
redis.call('PEXPIRE', once, ttl_ms)
call_first(waiters)
return done('1')
