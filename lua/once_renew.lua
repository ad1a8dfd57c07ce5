-- once_renew: renew the lease of running work.
--
-- INCLUDE time ledger mutation running
-- KEYS once  hash  see once_begin
-- ARGV token     int  token of the runner
-- ARGV lease_ms  int  lease from now on
-- ARGV ttl_ms    int  how long after that its attempts stay counted
--
-- RETURNS `1`, or `0` if the runner has lost the claim
-- FAILS   CLOSED, STALE, WRONGTYPE
local once = KEYS[4]
local token, lease_ms, ttl_ms = ARGV[6], ARGV[7], ARGV[8]

if not runs(once, token) then return '0' end
redis.call('HSET', once, 'until', whole(microseconds() + tonumber(lease_ms) * 1000))
redis.call('PEXPIRE', once, whole(tonumber(lease_ms) + tonumber(ttl_ms)))
return done('1')
