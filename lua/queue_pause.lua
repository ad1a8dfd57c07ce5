-- queue_pause: stop handing out tasks, or go on.
--
-- INCLUDE time ledger mutation waiters queue
-- KEYS ready    zset    tasks that anybody may take, by falling priority
-- KEYS delayed  zset    tasks that wait, by the time until which
-- KEYS claimed  zset    tasks that somebody has, by the end of their visibility
-- KEYS waiters  zset    workers in line
-- KEYS paused   string  there while nothing is handed out
-- ARGV rest  0|1  whether to stop
--
-- RETURNS 1 when that was news, else 0
-- FAILS   CLOSED, STALE
local ready, delayed, claimed, waiters, paused = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local rest, MOST_WOKEN = ARGV[6], 500
if rest == '1' then
  return done(redis.call('SET', paused, actor, 'NX') and '1' or '0')
end
local news = redis.call('DEL', paused)
if news == 1 then
  local waiting = math.min(redis.call('ZCARD', ready), MOST_WOKEN)
  wake(waiters, waiting, delayed, claimed)
  if waiting == 0 then keep_watch(waiters, delayed, claimed) end
end
return done(whole(news))
