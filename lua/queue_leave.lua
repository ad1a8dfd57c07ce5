-- queue_leave: stop waiting for tasks, and pass on a call that came too late.
--
-- INCLUDE time ledger mutation waiters queue
-- KEYS ready    zset  tasks that anybody may take, by falling priority
-- KEYS delayed  zset  tasks that wait, by the time until which
-- KEYS claimed  zset  tasks that somebody has, by the end of their visibility
-- KEYS waiters  zset  workers in line
-- ARGV waiter  text  who leaves
--
-- RETURNS 1 when it stood in line, else 0
-- FAILS   CLOSED, STALE
local ready, delayed, claimed, waiters = KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local waiter = ARGV[6]
if redis.call('ZREM', waiters, waiter) == 1 then
  keep_watch(waiters, delayed, claimed)
  return done('1')
end
if redis.call('ZCARD', ready) > 0 then wake(waiters, 1, delayed, claimed) end
return done('0')
