-- once_begin: claim pieces of work that are neither done nor running; otherwise wait for them, or get their results.
--
-- Requests that one client makes at the same moment share one call; they are independent.
--
-- INCLUDE time ledger mutation sharing waiters refusing
-- KEYS keys...      any   of each piece of work:
--                           hash: state (running, done, free), token, until, attempt, actor, name of the runner, result
--                           sorted set: its waiters
-- ARGV requests...  text  of each piece of work:
--                           the caller: its name as waiter and as runner
--                           1: wait if another caller runs it
--                           length of the claim, in milliseconds
--                           how long after that its attempts stay counted, in milliseconds
--
-- RETURNS the reply of one request; of several, each with its length and a space before it. A reply is `done <result>`,
--         `yours <token> <attempt>`, `running <milliseconds left> <1|0>`: whether first waiter, `again` if the result is
--         too large for a shared reply, or `E <error>` if another client has written to its keys
-- FAILS   CLOSED, STALE
local BEFORE_FIRST_KEY, BEFORE_FIRST, ARGUMENTS = 3, 5, 4
-- A reply that is remembered for a repeat stays small.
local LARGEST_SHARED_RESULT = 1024
local count = (#ARGV - BEFORE_FIRST) / ARGUMENTS

local function begin(i)
  local once, waiters = KEYS[BEFORE_FIRST_KEY + i * 2 - 1], KEYS[BEFORE_FIRST_KEY + i * 2]
  local at = BEFORE_FIRST + (i - 1) * ARGUMENTS
  local name, waits, lease_ms, ttl_ms = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  local held = redis.call('HMGET', once, 'state', 'until', 'attempt', 'result')
  local state, ends, attempts, result = held[1], held[2], held[3], held[4]
  if state == 'done' then
    if not result then return 'E its result is missing' end
    if count > 1 and #result > LARGEST_SHARED_RESULT then return 'again' end
    if waits == '1' then redis.call('ZREM', waiters, name) end
    return 'done ' .. result
  end

  local now = microseconds()
  if state == 'running' and tonumber(ends) > now then
    local place = '0'
    if waits == '1' then
      enlist(waiters, name)
      if redis.call('ZRANGE', waiters, 0, 0)[1] == name then place = '1' end
    end
    return 'running ' .. whole(math.ceil((tonumber(ends) - now) / 1000)) .. ' ' .. place
  end

  attempts = whole(tonumber(attempts or '0') + 1)
  local token = next_version(count)
  local until_then = whole(now + tonumber(lease_ms) * 1000)
  redis.call('HSET', once, 'state', 'running', 'token', token, 'until', until_then, 'attempt', attempts, 'actor', actor,
    'name', name)
  redis.call('PEXPIRE', once, whole(tonumber(lease_ms) + tonumber(ttl_ms)))
  if waits == '1' then redis.call('ZREM', waiters, name) end
  -- Notify the first waiter, which then sees when this lease ends.
  if state then call_first(waiters) end
  return 'yours ' .. token .. ' ' .. attempts
end

local replies = {}
for i = 1, count do replies[i] = attempt(begin, i) end
local reply = joined(replies)
if newest_version then return done(reply) end
return reply
