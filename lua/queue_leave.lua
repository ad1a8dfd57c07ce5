-- queue_leave: stop waiting for tasks, and pass on a notification that came too late.
--
-- INCLUDE time ledger mutation waiters queue
-- KEYS ready    zset  ready tasks, by falling priority
-- KEYS delayed  zset  delayed tasks, by the end of their delay
-- KEYS claimed  zset  claimed tasks, by the end of their visibility
-- KEYS waiters  zset  waiting workers
-- ARGV waiter  text  name of the waiter
--
-- RETURNS 1 if it was waiting, else 0
-- FAILS   CLOSED, STALE
local ready, delayed, claimed, waiters = KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local waiter = ARGV[6]
if redis.call('ZREM', waiters, waiter) == 1 then
  keep_watch(waiters, delayed, claimed)
  return done('1')
end
if redis.call('ZCARD', ready) > 0 then wake(waiters, 1, delayed, claimed) end
return done('0')
