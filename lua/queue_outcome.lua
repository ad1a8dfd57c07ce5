-- queue_outcome: return the outcome of a task.
--
-- KEYS delayed  zset    delayed tasks, by the end of their delay
-- KEYS claimed  zset    claimed tasks, by the end of their visibility
-- KEYS tasks    hash    the tasks by id
-- KEYS claims   hash    the claims by task id
-- KEYS dead     zset    dead letters, by the time of their burial
-- KEYS result   string  the result of this task
-- ARGV id  text  id of the task
--
-- RETURNS {state, encoded result, claim}: state is done, ready, delayed, claimed, dead or unknown
local delayed, claimed, tasks, claims, dead, result = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local id = ARGV[1]
local outcome = redis.call('GET', result)
if outcome then return { 'done', outcome, '' } end
if redis.call('HEXISTS', tasks, id) == 0 then return { 'unknown', '', '' } end
local claim = redis.call('HGET', claims, id) or ''
if redis.call('ZSCORE', dead, id) then return { 'dead', '', claim } end
if redis.call('ZSCORE', claimed, id) then return { 'claimed', '', claim } end
if redis.call('ZSCORE', delayed, id) then return { 'delayed', '', claim } end
return { 'ready', '', claim }
