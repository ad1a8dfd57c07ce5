-- lease_revoke: end the lease with a fencing token against the will of its holder, and notify the next waiter.
--
-- INCLUDE time ledger mutation waiters turns
-- KEYS holders  zset    as lease_acquire
-- KEYS waiters  zset    as lease_acquire
-- KEYS name     string  the key of the name, for the announcement
-- ARGV token   int   fencing token of the holder
-- ARGV change  text  operation to announce
--
-- RETURNS `revoked`; `gone` if no holder has the token, or its lease has ended
-- FAILS   CLOSED, STALE
local holders, waiters, name = KEYS[4], KEYS[5], KEYS[6]
local token, change = ARGV[6], ARGV[7]
for _, holder in ipairs(redis.call('ZRANGEBYSCORE', holders, '(' .. whole(microseconds()), '+inf')) do
  if string.match(holder, '^%d+') == token then
    redis.call('ZREM', holders, holder)
    call_next(waiters)
    announce(whole(tick(1)), change, name)
    return done('revoked')
  end
end
return done('gone')
