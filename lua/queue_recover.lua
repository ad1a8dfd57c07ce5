-- queue_recover: recover tasks from workers that did not renew them before their visibility timeout.
--
-- INCLUDE time ledger mutation waiters queue task
-- KEYS queue      none  the queue's name, for the change stream
-- KEYS ready      zset  ready tasks, by falling priority
-- KEYS delayed    zset  delayed tasks, by the end of their delay
-- KEYS claimed    zset  claimed tasks, by the end of their visibility
-- KEYS tasks      hash  the tasks by id
-- KEYS claims     hash  the claims by task id
-- KEYS dead       zset  dead letters, by the time of their burial
-- KEYS counts     hash  counters of the queue
-- KEYS followers  hash  waiters for outcomes, by task id
-- KEYS waiters    zset  waiting workers
-- ARGV most  int  most tasks at a time
--
-- RETURNS `<number of ready tasks> <number of dead letters>`
-- FAILS   CLOSED, STALE
local queue, ready, delayed, claimed, tasks = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local claims, dead, counts, followers, waiters = KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local most, NOT_RENEWED = ARGV[6], 'its worker did not renew it before the visibility timeout'
local back, buried = 0, 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', claimed, '-inf', whole(microseconds()), 'LIMIT', '0', most)) do
  redis.call('ZREM', claimed, id)
  local _, attempt, worker, unique = claim_of(claims, id)
  local priority, attempts = facts_of(tasks, id)
  if attempt and priority then
    unclaim(claims, id, attempt, worker, unique, NOT_RENEWED)
    if tonumber(attempt) < attempts then
      line_up(ready, id, priority)
      tally(counts, 'recovered')
      back = back + 1
    else
      bury(dead, id, queue, counts, followers)
      buried = buried + 1
    end
  end
end
if back > 0 then wake(waiters, back, delayed, claimed) end
return done(whole(back) .. ' ' .. whole(buried))
