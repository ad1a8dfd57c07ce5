-- once_finish: store the result of work, and notify all its waiters.
--
-- INCLUDE time ledger mutation waiters running
-- KEYS once     hash       see once_begin
-- KEYS waiters  sortedset  its waiters
-- ARGV token   int   token of the runner
-- ARGV ttl_ms  int   lifetime of the result
-- ARGV result  blob  the encoded result
--
-- RETURNS `1`, or `0` if the runner has lost the claim
-- FAILS   CLOSED, STALE, WRONGTYPE
local once, waiters = KEYS[4], KEYS[5]
local token, ttl_ms, result = ARGV[6], ARGV[7], ARGV[8]

if not runs(once, token) then return '0' end
redis.call('HSET', once, 'state', 'done', 'result', result)
redis.call('HDEL', once, 'until', 'name')
redis.call('PEXPIRE', once, ttl_ms)
call_all(waiters)
return done('1')
