-- queue_release: give a task back that was not begun; the attempt does not count.
--
-- INCLUDE time ledger mutation waiters queue task
-- KEYS ready    zset  tasks that anybody may take, by falling priority
-- KEYS delayed  zset  tasks that wait, by the time until which
-- KEYS claimed  zset  tasks that somebody has, by the end of their visibility
-- KEYS tasks    hash  what there is to do
-- KEYS claims   hash  who has what, and what became of it before
-- KEYS waiters  zset  workers in line
-- ARGV id     text  which task
-- ARGV token  int   the receipt
--
-- RETURNS 1, or 0 when the claim is lost
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
