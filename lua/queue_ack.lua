-- queue_ack: acknowledge a task.
--
-- INCLUDE time ledger mutation waiters task
-- KEYS claimed    zset    claimed tasks, by the end of their visibility
-- KEYS tasks      hash    the tasks by id
-- KEYS claims     hash    the claims by task id
-- KEYS dedup      hash    unfinished tasks by deduplication id
-- KEYS counts     hash    counters of the queue
-- KEYS followers  hash    waiters for outcomes, by task id
-- KEYS result     string  the result of this task
-- ARGV id       text  id of the task
-- ARGV token    int   token of the claim
-- ARGV keep_result_ms  int   lifetime of the result; 0: not stored
-- ARGV outcome  blob  the encoded result
--
-- RETURNS 1, or 0 if the claim is lost
-- FAILS   CLOSED, STALE
local claimed, tasks, claims, dedup = KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local counts, followers, result = KEYS[8], KEYS[9], KEYS[10]
local id, token, keep_result_ms, outcome = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local held, _, _, unique = claim_of(claims, id)
if held ~= token then return '0' end
redis.call('ZREM', claimed, id)
redis.call('HDEL', tasks, id)
redis.call('HDEL', claims, id)
if unique ~= '' then redis.call('HDEL', dedup, unique) end
if keep_result_ms ~= '0' then redis.call('SET', result, outcome, 'PX', keep_result_ms) end
tally(counts, 'done')
notify_followers(followers, id)
return done('1')
