-- queue_follow: wait to be called when a task has an outcome, or stop waiting.
--
-- INCLUDE time ledger mutation waiters
-- KEYS tasks      hash  what there is to do
-- KEYS dead       zset  dead letters, by the time of their death
-- KEYS followers  hash  who waits for the outcome of which task
-- ARGV id        text  which task
-- ARGV follower  text  who waits
-- ARGV stays     0|1   0 to stop
--
-- RETURNS 1 when it will be called, else 0: there is an outcome, or no such task
-- FAILS   CLOSED, STALE
local tasks, dead, followers = KEYS[4], KEYS[5], KEYS[6]
local id, follower, stays = ARGV[6], ARGV[7], ARGV[8]
local others = {}
for name in string.gmatch(redis.call('HGET', followers, id) or '', '%S+') do
  if name ~= follower then others[#others + 1] = name end
end
if stays == '1' then
  if redis.call('HEXISTS', tasks, id) == 0 or redis.call('ZSCORE', dead, id) then return '0' end
  others[#others + 1] = follower
end
if #others == 0 then
  redis.call('HDEL', followers, id)
  return '0'
end
redis.call('HSET', followers, id, table.concat(others, ' '))
redis.call('PEXPIRE', followers, LINE_LIVES_MS)
return done(stays)
