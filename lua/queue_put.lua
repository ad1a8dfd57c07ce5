-- queue_put: put tasks with the same settings into a queue, all or none.
--
-- INCLUDE time ledger mutation waiters queue names naming
-- KEYS ready    zset  ready tasks, by falling priority
-- KEYS delayed  zset  delayed tasks, by the end of their delay
-- KEYS claimed  zset  claimed tasks, by the end of their visibility
-- KEYS tasks    hash  the tasks by id
-- KEYS waiters  zset  waiting workers
-- ARGV priority      int   higher ones are claimed first
-- ARGV delay_ms      int   initial delay
-- ARGV max_attempts  int   highest number of attempts
-- ARGV payloads...   blob  an encoded value for each task
--
-- RETURNS `<id of the first>`: the others have the next numbers
-- FAILS   CLOSED, STALE
local ready, delayed, claimed, tasks, waiters = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local priority, delay_ms, max_attempts, before_first = ARGV[6], ARGV[7], ARGV[8], 8
local count = #ARGV - before_first
local first = tick(count)
local head = priority .. ' ' .. max_attempts .. ' ' .. actor .. ' \n'
local score = priority == '0' and '0' or whole(-tonumber(priority))
if delay_ms ~= '0' then score = whole(microseconds() + tonumber(delay_ms) * 1000) end

local entries, places = {}, {}
for i = 1, count do
  local id = whole(first + i - 1)
  entries[i * 2 - 1], entries[i * 2] = id, head .. ARGV[before_first + i]
  places[i * 2 - 1], places[i * 2] = score, id
end
redis.call('HSET', tasks, unpack(entries))
if redis.call('HLEN', tasks) == count then created(tasks) end
if delay_ms == '0' then
  redis.call('ZADD', ready, unpack(places))
  wake(waiters, count, delayed, claimed)
else
  redis.call('ZADD', delayed, unpack(places))
  local _, next_due = soonest(delayed)
  if tonumber(next_due) >= first then call_first(waiters) end
end
return done(whole(first))
