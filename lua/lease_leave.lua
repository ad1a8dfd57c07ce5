-- lease_leave: stop waiting, and pass the turn on; release a lease that was granted at the same moment.
--
-- INCLUDE time ledger mutation waiters turns
-- KEYS holders  zset  as lease_acquire
-- KEYS waiters  zset  as lease_acquire
-- ARGV asker  text  the caller, as lease_acquire
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
-- Notify the waiter that is first now: only the first one tries again when a lease expires.
if was_first then call_next(waiters, asker) end
return done('left')
