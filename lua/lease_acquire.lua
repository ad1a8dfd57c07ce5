-- lease_acquire: acquire a lease on a name, or wait for one.
--
-- A shared holder has weight 1; an exclusive one has the whole capacity as its weight. So several holders have weight 1
-- each, and only a single holder may have more.
--
-- INCLUDE time ledger mutation waiters turns names naming
-- KEYS holders  zset    `<token> <actor> <weight> <asker>` by the end of the lease, in microseconds
-- KEYS waiters  zset    the waiters
-- KEYS name     string  the key of the name, for the announcement
-- ARGV capacity  int   capacity of the name
-- ARGV weight    int   requested weight: 1, or all
-- ARGV lease_ms  int   length of the lease
-- ARGV asker     text  the caller: the name of a waiter, or an id of its own
-- ARGV waits     0|1   whether a refused caller becomes a waiter
-- ARGV gain      text  operation to announce; empty: none
--
-- RETURNS `got <token>`; `wait <ms> <rank>` if it was refused: time until the next lease expires, and the
--   number of waiters before it
-- FAILS   CLOSED, STALE
local holders, waiters, name = KEYS[4], KEYS[5], KEYS[6]
local capacity, weight, lease_ms = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local asker, waits, gain = ARGV[9], ARGV[10], ARGV[11]

local earliest = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')
if earliest[1] and tonumber(earliest[2]) <= microseconds() then
  redis.call('ZREMRANGEBYSCORE', holders, '-inf', whole(microseconds()))
  earliest = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')
end
local used = 0
if earliest[1] then
  used = redis.call('ZCARD', holders)
  if used == 1 then used = tonumber(string.match(earliest[1], '^%d+ %S+ (%d+)')) end
end
local is_free = used + weight <= capacity
local changes_at = earliest[2]
local first = redis.call('ZRANGE', waiters, 0, 0)[1]
if is_free and first and first ~= asker then
  first, changes_at = call_next(waiters, asker)
end

if is_free and (not first or first == asker) then
  local ends = microseconds() + lease_ms * 1000
  local latest = ends
  if used > 0 then
    latest = math.max(ends, tonumber(redis.call('ZRANGE', holders, -1, -1, 'WITHSCORES')[2]))
  end
  local version = tick(1)
  redis.call('ZADD', holders, whole(ends), whole(version) .. ' ' .. actor .. ' ' .. weight .. ' ' .. asker)
  redis.call('PEXPIRE', holders, whole((latest - microseconds()) / 1000 + 1000))
  if used == 0 then created(holders) end
  if first then
    redis.call('ZREM', waiters, asker)
    -- Readers enter together: each notifies the next, until one must wait.
    if used + weight < capacity then call_next(waiters) end
  end
  if gain ~= '' then announce(whole(version), gain, name) end
  return done('got ' .. whole(version))
end

local wait_ms = whole(math.max(0, ((changes_at or 0) - microseconds()) / 1000 + 1))
if waits == '0' then return 'wait ' .. wait_ms .. ' ' .. redis.call('ZCARD', waiters) end
enlist(waiters, asker)
-- It came when it was notified, but without success: its turn does not expire now.
if first == asker then redis.call('ZADD', waiters, 0, asker) end
return 'wait ' .. wait_ms .. ' ' .. redis.call('ZRANK', waiters, asker)
