-- queue_stats: count the tasks of a queue, in a time that does not depend on its length.
--
-- INCLUDE time
-- KEYS ready    zset    ready tasks, by falling priority
-- KEYS delayed  zset    delayed tasks, by the end of their delay
-- KEYS claimed  zset    claimed tasks, by the end of their visibility
-- KEYS tasks    hash    the tasks by id
-- KEYS dead     zset    dead letters, by the time of their burial
-- KEYS counts   hash    counters of the queue
-- KEYS paused   string  exists while the queue is paused
-- KEYS waiters  zset    waiting workers
-- ARGV levels  int  number of priorities to search for the oldest task
--
-- RETURNS {ready, delayed, claimed, dead, all tasks, waiting workers, whether paused, microseconds for which the
--         oldest task has been ready, or -1, done, retried, recovered, buried, discarded}
local ready, delayed, claimed, tasks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local dead, counts, paused, waiters = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local levels = tonumber(ARGV[1])

-- The first task of each priority is its oldest one.
local function oldest_of(line)
  local oldest, above = nil, '-inf'
  for _ = 1, levels do
    local first = redis.call('ZRANGEBYSCORE', line, above, '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
    if not first[1] then break end
    oldest = math.min(oldest or tonumber(first[1]), tonumber(first[1]))
    above = '(' .. first[2]
  end
  return oldest
end

local oldest = oldest_of(ready)
local figures = {
  redis.call('ZCARD', ready), redis.call('ZCARD', delayed), redis.call('ZCARD', claimed), redis.call('ZCARD', dead),
  redis.call('HLEN', tasks), redis.call('ZCARD', waiters), redis.call('EXISTS', paused),
  oldest and math.max(microseconds() - oldest, 0) or -1,
}
for i, count in ipairs(redis.call('HMGET', counts, 'done', 'retried', 'recovered', 'dead', 'discarded')) do
  figures[8 + i] = tonumber(count or '0')
end
return figures
