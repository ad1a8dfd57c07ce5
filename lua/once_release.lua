-- once_release: give work back that has failed, and call who is next.
--
-- INCLUDE time ledger mutation waiters running
-- KEYS once     hash       see once_begin
-- KEYS waiters  sortedset  who waits for it
-- ARGV token   int  of the runner
-- ARGV ttl_ms  int  for how long its attempts are counted
--
-- RETURNS `1`, or `0` when it is no longer the runner's
-- FAILS   CLOSED, STALE, WRONGTYPE
local once, waiters = KEYS[4], KEYS[5]
local token, ttl_ms = ARGV[6], ARGV[7]

if not runs(once, token) then return '0' end
redis.call('HSET', once, 'state', 'free')
redis.call('HDEL', once, 'until', 'name')
redis.call('PEXPIRE', once, ttl_ms)
call_first(waiters)
return done('1')
