-- lease_leave: wait no longer, and pass the turn on; gives back a place that was got in the moment of leaving.
--
-- INCLUDE time ledger mutation waiters turns
-- KEYS holders  zset  as lease_acquire
-- KEYS waiters  zset  as lease_acquire
-- ARGV asker  text  who has asked, as lease_acquire
--
-- RETURNS `left`
-- FAILS   CLOSED, STALE
local holders, waiters, asker = KEYS[4], KEYS[5], ARGV[6]
local was_first = redis.call('ZRANGE', waiters, 0, 0)[1] == asker
redis.call('ZREM', waiters, asker)
for _, holder in ipairs(redis.call('ZRANGE', holders, 0, -1)) do
  if string.match(holder, '[^ ]*$') == asker then
    redis.call('ZREM', holders, holder)
    was_first = true
  end
end
-- Who is first now has to know it: only the first looks again in the moment when a lease ends.
if was_first then call_next(waiters, asker) end
return done('left')
