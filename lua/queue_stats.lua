-- queue_stats: count what is in a queue, in a time that does not grow with it.
--
-- INCLUDE time
-- KEYS ready    zset    tasks that anybody may take, by falling priority
-- KEYS delayed  zset    tasks that wait, by the time until which
-- KEYS claimed  zset    tasks that somebody has, by the end of their visibility
-- KEYS tasks    hash    what there is to do
-- KEYS dead     zset    dead letters, by the time of their death
-- KEYS counts   hash    what has happened so far
-- KEYS paused   string  there while nothing is handed out
-- KEYS waiters  zset    workers in line
-- ARGV levels  int  among how many priorities to look for the oldest
--
-- RETURNS {ready, delayed, claimed, dead, all tasks, workers in line, whether paused, microseconds for which the
--         oldest is ready to be taken or -1, done, retried, recovered, buried, discarded}
local ready, delayed, claimed, tasks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local dead, counts, paused, waiters = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local levels = tonumber(ARGV[1])

-- The first of each priority is the oldest of it.
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
