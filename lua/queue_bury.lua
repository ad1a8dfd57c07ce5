-- queue_bury: make a task that is not done a dead letter; a worker that has it loses its claim.
--
-- INCLUDE time ledger mutation waiters task
-- KEYS queue      none  the queue's name, for the change stream
-- KEYS ready      zset  ready tasks, by falling priority
-- KEYS delayed    zset  delayed tasks, by the end of their delay
-- KEYS claimed    zset  claimed tasks, by the end of their visibility
-- KEYS tasks      hash  the tasks by id
-- KEYS claims     hash  the claims by task id
-- KEYS dead       zset  dead letters, by the time of their burial
-- KEYS counts     hash  counters of the queue
-- KEYS followers  hash  waiters for outcomes, by task id
-- ARGV id      text  id of the task
-- ARGV reason  text  why
--
-- RETURNS 1, or 0 if the task does not exist or is a dead letter already
-- FAILS   CLOSED, STALE
local queue, ready, delayed, claimed, tasks = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local claims, dead, counts, followers = KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local id, reason = ARGV[6], ARGV[7]
local priority, _, unique = facts_of(tasks, id)
if not priority or redis.call('ZSCORE', dead, id) then return '0' end
redis.call('ZREM', ready, id)
redis.call('ZREM', delayed, id)
redis.call('ZREM', claimed, id)
local _, attempt, worker = claim_of(claims, id)
unclaim(claims, id, attempt or '0', worker or actor, unique, reason)
bury(dead, id, queue, counts, followers)
return done('1')
