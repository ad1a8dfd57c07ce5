-- lease_acquire: acquire leases on names, each for a caller of its own, or wait for them.
--
-- Requests on the same terms that one client makes at the same moment share one call; they are independent.
--
-- A shared holder has weight 1; an exclusive one has the whole capacity as its weight. So several holders have weight 1
-- each, and only a single holder may have more.
--
-- INCLUDE time ledger mutation packing waiters turns names naming
-- KEYS keys...   any   of each request: its holders, a sorted set of `<token> <actor> <weight> <asker>` by the end of
--                      the lease in microseconds; its waiters; and the key of its name, for the announcement
-- ARGV capacity  int   capacity of the names
-- ARGV weight    int   requested weight: 1, or all
-- ARGV lease_ms  int   length of the leases
-- ARGV gain      text  operation to announce; empty: none
-- ARGV waits     0|1   whether a refused caller becomes a waiter
-- ARGV askers... text  the caller of each: the name of a waiter, or an id of its own
--
-- RETURNS one line a request: `got <token>`; `wait <ms> <rank>` if it was refused: time until the next lease expires, and
--   the number of waiters before it; `E <error>` if another client has written to its keys
-- FAILS   CLOSED, STALE
local FIRST_KEY, FIRST_ARGUMENT, LATEST = 3, 10, 2 ^ 53
local capacity, weight, lease_ms = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local gain, waits = ARGV[9], ARGV[10]
local count = #ARGV - FIRST_ARGUMENT
local granted, first_token = 0, nil
if count > 1 then packet = {} end

-- Returns the reply line of a request.
local function acquire(at, asker)
  local holders, waiters, name = KEYS[at], KEYS[at + 1], KEYS[at + 2]
  local earliest = redis.pcall('ZRANGE', holders, 0, 0, 'WITHSCORES')
  local first = redis.pcall('ZRANGE', waiters, 0, 0)
  local refusal = earliest.err or first.err
  if refusal then return 'E ' .. string.gsub(refusal, '\n', ' ') end
  if earliest[1] and tonumber(earliest[2]) <= microseconds() then
    redis.call('ZREMRANGEBYSCORE', holders, '-inf', whole(microseconds()))
    earliest = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')
  end
  local used, latest = 0, 0
  if earliest[1] then
    used = redis.call('ZCARD', holders)
    if used == 1 then used = tonumber(string.match(earliest[1], '^%d+ %S+ (%d+)')) end
    latest = tonumber(used == 1 and earliest[2] or redis.call('ZRANGE', holders, -1, -1, 'WITHSCORES')[2])
    -- A lease of sharedmem has an end: an infinite one is another client's.
    if not used or latest > LATEST then return 'E DAMAGED another client has written to the holders of the name' end
  end
  local is_free = used + weight <= capacity
  local changes_at = earliest[2]
  first = first[1]
  if is_free and first and first ~= asker then
    first, changes_at = call_next(waiters, asker)
  end

  if is_free and (not first or first == asker) then
    local ends = microseconds() + lease_ms * 1000
    latest = math.max(ends, latest)
    first_token = first_token or tick(count)
    local token = whole(first_token + granted)
    granted = granted + 1
    redis.call('ZADD', holders, whole(ends), token .. ' ' .. actor .. ' ' .. weight .. ' ' .. asker)
    redis.call('PEXPIRE', holders, whole((latest - microseconds()) / 1000 + 1000))
    if used == 0 then created(holders) end
    if first then
      redis.call('ZREM', waiters, asker)
      -- Readers enter together: each notifies the next, until one must wait.
      if used + weight < capacity then call_next(waiters) end
    end
    if gain ~= '' then announce(token, gain, name) end
    return 'got ' .. token
  end

  local wait_ms = whole(math.max(0, ((changes_at or 0) - microseconds()) / 1000 + 1))
  if waits == '0' then return 'wait ' .. wait_ms .. ' ' .. redis.call('ZCARD', waiters) end
  enlist(waiters, asker)
  -- It came when it was notified, but without success: its turn does not expire now.
  if first == asker then redis.call('ZADD', waiters, 0, asker) end
  return 'wait ' .. wait_ms .. ' ' .. redis.call('ZRANK', waiters, asker)
end

local replies = {}
for i = 1, count do replies[i] = acquire(FIRST_KEY + i * 3 - 2, ARGV[FIRST_ARGUMENT + i]) end
return done(table.concat(replies, '\n'))
