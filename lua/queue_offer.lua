-- queue_offer: put a task into a queue, unless one of its deduplication id is there or was put lately.
--
-- INCLUDE time ledger mutation waiters queue
-- KEYS ready    zset    tasks that anybody may take, by falling priority
-- KEYS delayed  zset    tasks that wait, by the time until which
-- KEYS claimed  zset    tasks that somebody has, by the end of their visibility
-- KEYS tasks    hash    what there is to do
-- KEYS waiters  zset    workers in line
-- KEYS dedup    hash    the tasks that are not done, by deduplication id
-- KEYS recent   string  the task that was put lately under this deduplication id
-- ARGV priority      int   the higher, the sooner
-- ARGV delay_ms      int   how long it waits at first
-- ARGV max_attempts  int   how often it is tried
-- ARGV unique        text  deduplication id
-- ARGV window_ms     int   how long from now on the id is refused, also when the task is done
-- ARGV payload       blob  a coded value
--
-- RETURNS `<id> <1|0>`: 0 when it is the id of a task that was there
-- FAILS   CLOSED, STALE
local ready, delayed, claimed, tasks, waiters = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local dedup, recent = KEYS[9], KEYS[10]
local priority, delay_ms, max_attempts = ARGV[6], ARGV[7], ARGV[8]
local unique, window_ms, payload = ARGV[9], ARGV[10], ARGV[11]
local known = redis.call('HGET', dedup, unique) or redis.call('GET', recent)
if known then return known .. ' 0' end

local id = whole(tick(1))
redis.call('HSET', tasks, id, priority .. ' ' .. max_attempts .. ' ' .. actor .. ' ' .. unique .. '\n' .. payload)
redis.call('HSET', dedup, unique, id)
if window_ms ~= '0' then redis.call('SET', recent, id, 'PX', window_ms) end
if delay_ms ~= '0' then
  postpone(delayed, id, microseconds() + tonumber(delay_ms) * 1000, waiters)
else
  line_up(ready, id, priority)
  wake(waiters, 1, delayed, claimed)
end
return done(id .. ' 1')
