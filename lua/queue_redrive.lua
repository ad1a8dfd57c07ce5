-- queue_redrive: try dead letters again, as if they had just been put.
--
-- INCLUDE time ledger mutation waiters queue task
-- KEYS ready    zset  ready tasks, by falling priority
-- KEYS delayed  zset  delayed tasks, by the end of their delay
-- KEYS claimed  zset  claimed tasks, by the end of their visibility
-- KEYS tasks    hash  the tasks by id
-- KEYS claims   hash  the claims by task id
-- KEYS dead     zset  dead letters, by the time of their burial
-- KEYS waiters  zset  waiting workers
-- ARGV id    text  id of the letter; '': the oldest ones
-- ARGV most  int   number of these
--
-- RETURNS the number of redriven letters
-- FAILS   CLOSED, STALE
local ready, delayed, claimed, tasks = KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local claims, dead, waiters = KEYS[8], KEYS[9], KEYS[10]
local id, most = ARGV[6], ARGV[7]
local ids, count = { id }, 0
if id == '' then ids = redis.call('ZRANGE', dead, 0, whole(tonumber(most) - 1)) end
for _, letter in ipairs(ids) do
  if redis.call('ZREM', dead, letter) == 1 then
    redis.call('HDEL', claims, letter)
    line_up(ready, letter, (facts_of(tasks, letter)))
    count = count + 1
  end
end
if count > 0 then wake(waiters, count, delayed, claimed) end
return done(whole(count))
