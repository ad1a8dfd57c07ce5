-- once_finish: store the result of work, and call all who wait for it.
--
-- INCLUDE time ledger mutation waiters running
-- KEYS once     hash       see once_begin
-- KEYS waiters  sortedset  who waits for it
-- ARGV token   int   of the runner
-- ARGV ttl_ms  int   how long the result is kept
-- ARGV result  blob  coded
--
-- RETURNS `1`, or `0` when it is no longer the runner's
-- FAILS   CLOSED, STALE, WRONGTYPE
local once, waiters = KEYS[4], KEYS[5]
local token, ttl_ms, result = ARGV[6], ARGV[7], ARGV[8]

if not runs(once, token) then return '0' end
redis.call('HSET', once, 'state', 'done', 'result', result)
redis.call('HDEL', once, 'until', 'name')
redis.call('PEXPIRE', once, ttl_ms)
call_all(waiters)
return done('1')
