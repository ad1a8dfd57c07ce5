-- queue_offer: put a task into a queue, unless one with its deduplication id exists or was put lately.
--
-- INCLUDE time ledger mutation waiters queue names naming
-- KEYS ready    zset    ready tasks, by falling priority
-- KEYS delayed  zset    delayed tasks, by the end of their delay
-- KEYS claimed  zset    claimed tasks, by the end of their visibility
-- KEYS tasks    hash    the tasks by id
-- KEYS waiters  zset    waiting workers
-- KEYS dedup    hash    unfinished tasks by deduplication id
-- KEYS recent   string  the task that was put lately under this deduplication id
-- ARGV priority      int   higher ones are claimed first
-- ARGV delay_ms      int   initial delay
-- ARGV max_attempts  int   highest number of attempts
-- ARGV unique        text  deduplication id
-- ARGV window_ms     int   how long the id is taken from now on, even if the task is done
-- ARGV payload       blob  an encoded value
--
-- RETURNS `<id> <1|0>`: 0 if it is the id of an existing task
-- FAILS   CLOSED, STALE
local ready, delayed, claimed, tasks, waiters = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local dedup, recent = KEYS[9], KEYS[10]
local priority, delay_ms, max_attempts = ARGV[6], ARGV[7], ARGV[8]
local unique, window_ms, payload = ARGV[9], ARGV[10], ARGV[11]
local known = redis.call('HGET', dedup, unique) or redis.call('GET', recent)
if known then return known .. ' 0' end

local id = whole(tick(1))
redis.call('HSET', tasks, id, priority .. ' ' .. max_attempts .. ' ' .. actor .. ' ' .. unique .. '\n' .. payload)
if redis.call('HLEN', tasks) == 1 then created(tasks) end
redis.call('HSET', dedup, unique, id)
if window_ms ~= '0' then redis.call('SET', recent, id, 'PX', window_ms) end
if delay_ms ~= '0' then
  postpone(delayed, id, microseconds() + tonumber(delay_ms) * 1000, waiters)
else
  line_up(ready, id, priority)
  wake(waiters, 1, delayed, claimed)
end
return done(id .. ' 1')
