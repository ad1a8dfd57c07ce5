-- queue_pause: stop claims, or allow them again.
--
-- INCLUDE time ledger mutation waiters queue names naming
-- KEYS ready    zset    ready tasks, by falling priority
-- KEYS delayed  zset    delayed tasks, by the end of their delay
-- KEYS claimed  zset    claimed tasks, by the end of their visibility
-- KEYS waiters  zset    waiting workers
-- KEYS paused   string  exists while the queue is paused
-- ARGV rest  0|1  1: stop claims
--
-- RETURNS 1 if the state has changed, else 0
-- FAILS   CLOSED, STALE
local ready, delayed, claimed, waiters, paused = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local rest, MOST_WOKEN = ARGV[6], 500
if rest == '1' then
  if not redis.call('SET', paused, actor, 'NX') then return done('0') end
  created(paused)
  return done('1')
end
local news = redis.call('DEL', paused)
if news == 1 then
  local waiting = math.min(redis.call('ZCARD', ready), MOST_WOKEN)
  wake(waiters, waiting, delayed, claimed)
  if waiting == 0 then keep_watch(waiters, delayed, claimed) end
end
return done(whole(news))
