-- queue_release: release a task that was not begun; the attempt does not count.
--
-- INCLUDE time ledger mutation waiters queue task
-- KEYS ready    zset  ready tasks, by falling priority
-- KEYS delayed  zset  delayed tasks, by the end of their delay
-- KEYS claimed  zset  claimed tasks, by the end of their visibility
-- KEYS tasks    hash  the tasks by id
-- KEYS claims   hash  the claims by task id
-- KEYS waiters  zset  waiting workers
-- ARGV id     text  id of the task
-- ARGV token  int   token of the claim
--
-- RETURNS 1, or 0 if the claim is lost
-- FAILS   CLOSED, STALE
local ready, delayed, claimed, tasks, claims, waiters = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local id, token = ARGV[6], ARGV[7]
local held, attempt, worker, unique, text = claim_of(claims, id)
if held ~= token then return '0' end
redis.call('ZREM', claimed, id)
unclaim(claims, id, whole(tonumber(attempt) - 1), worker, unique, text)
line_up(ready, id, facts_of(tasks, id))
wake(waiters, 1, delayed, claimed)
return done('1')
