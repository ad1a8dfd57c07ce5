-- queue_ack: a task is done.
--
-- INCLUDE time ledger mutation waiters task
-- KEYS claimed    zset    tasks that somebody has, by the end of their visibility
-- KEYS tasks      hash    what there is to do
-- KEYS claims     hash    who has what, and what became of it before
-- KEYS dedup      hash    the tasks that are not done, by deduplication id
-- KEYS counts     hash    what has happened so far
-- KEYS followers  hash    who waits for the outcome of which task
-- KEYS result     string  what came out of this task
-- ARGV id       text  which task
-- ARGV token    int   the receipt
-- ARGV keep_result_ms  int   how long the result can be asked for; 0 not at all
-- ARGV outcome  blob  the coded result
--
-- RETURNS 1, or 0 when the claim is lost
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
tell(followers, id)
return done('1')
