-- queue_discard: forget a task that is not done, whatever state it is in.
--
-- INCLUDE time ledger mutation waiters task
-- KEYS ready      zset  tasks that anybody may take, by falling priority
-- KEYS delayed    zset  tasks that wait, by the time until which
-- KEYS claimed    zset  tasks that somebody has, by the end of their visibility
-- KEYS tasks      hash  what there is to do
-- KEYS claims     hash  who has what, and what became of it before
-- KEYS dead       zset  dead letters, by the time of their death
-- KEYS dedup      hash  the tasks that are not done, by deduplication id
-- KEYS counts     hash  what has happened so far
-- KEYS followers  hash  who waits for the outcome of which task
-- ARGV id  text  which task
--
-- RETURNS 1, or 0 when there is no such task
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
tell(followers, id)
return done('1')
