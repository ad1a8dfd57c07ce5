-- queue_follow: register for the notification of a task's outcome, or stop waiting.
--
-- INCLUDE time ledger mutation waiters
-- KEYS tasks      hash  the tasks by id
-- KEYS dead       zset  dead letters, by the time of their burial
-- KEYS followers  hash  waiters for outcomes, by task id
-- ARGV id        text  id of the task
-- ARGV follower  text  name of the waiter
-- ARGV stays     0|1   0: stop waiting
--
-- RETURNS 1 if it will be notified, else 0: there is an outcome, or the task does not exist
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
