-- queue_discard: delete a task that is not done, in any state.
--
-- INCLUDE time ledger mutation waiters task
-- KEYS ready      zset  ready tasks, by falling priority
-- KEYS delayed    zset  delayed tasks, by the end of their delay
-- KEYS claimed    zset  claimed tasks, by the end of their visibility
-- KEYS tasks      hash  the tasks by id
-- KEYS claims     hash  the claims by task id
-- KEYS dead       zset  dead letters, by the time of their burial
-- KEYS dedup      hash  unfinished tasks by deduplication id
-- KEYS counts     hash  counters of the queue
-- KEYS followers  hash  waiters for outcomes, by task id
-- ARGV id  text  id of the task
--
-- RETURNS 1, or 0 if the task does not exist
-- FAILS   CLOSED, STALE
local ready, delayed, claimed, tasks, claims = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local dead, dedup, counts, followers = KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local id = ARGV[6]
local priority, _, unique = facts_of(tasks, id)
if not priority then return '0' end
redis.call('ZREM', ready, id)
redis.call('ZREM', delayed, id)
redis.call('ZREM', claimed, id)
redis.call('ZREM', dead, id)
redis.call('HDEL', tasks, id)
redis.call('HDEL', claims, id)
if unique ~= '' then redis.call('HDEL', dedup, unique) end
tally(counts, 'discarded')
notify_followers(followers, id)
return done('1')
