-- queue_retry: a task has failed; it is tried again after a pause, or becomes a dead letter.
--
-- INCLUDE time ledger mutation waiters queue task
-- KEYS queue      none  the queue's name, for the change stream
-- KEYS ready      zset  ready tasks, by falling priority
-- KEYS delayed    zset  delayed tasks, by the end of their delay
-- KEYS claimed    zset  claimed tasks, by the end of their visibility
-- KEYS tasks      hash  the tasks by id
-- KEYS claims     hash  the claims by task id
-- KEYS dead       zset  dead letters, by the time of their burial
-- KEYS counts     hash  counters of the queue
-- KEYS followers  hash  waiters for outcomes, by task id
-- KEYS waiters    zset  waiting workers
-- ARGV id        text  id of the task
-- ARGV token     int   token of the claim
-- ARGV delay_ms  int   the pause; -1: do not try again
-- ARGV reason    text  what went wrong
--
-- RETURNS `again`, `dead`, or `lost` if the claim is lost
-- FAILS   CLOSED, STALE
local queue, ready, delayed, claimed, tasks = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local claims, dead, counts, followers, waiters = KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local id, token, delay_ms, reason = ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9]
local held, attempt, worker, unique = claim_of(claims, id)
if held ~= token then return 'lost' end
local priority, attempts = facts_of(tasks, id)
redis.call('ZREM', claimed, id)
unclaim(claims, id, attempt, worker, unique, reason)
if delay_ms < 0 or tonumber(attempt) >= attempts then
  bury(dead, id, queue, counts, followers)
  return done('dead')
end
tally(counts, 'retried')
if delay_ms > 0 then
  postpone(delayed, id, microseconds() + delay_ms * 1000, waiters)
else
  line_up(ready, id, priority)
  wake(waiters, 1, delayed, claimed)
end
return done('again')
