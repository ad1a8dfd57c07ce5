-- once_finish: store the results of pieces of work, and notify all their waiters.
--
-- Results that one client stores at the same moment share one call; they are independent.
--
-- INCLUDE time ledger mutation waiters running refusing
-- KEYS keys...    any   of each piece of work: its hash (see once_begin), and its waiters
-- ARGV ends...    text  of each piece of work:
--                         token of the runner
--                         lifetime of the result, in milliseconds
--                         the encoded result
--
-- RETURNS one line a piece of work: `1`; `0` if the runner has lost the claim; `E <error>` if another client has written
--         to its keys
-- FAILS   CLOSED, STALE
local BEFORE_FIRST_KEY, BEFORE_FIRST, ARGUMENTS = 3, 5, 3

local stores = false
local function finish(once, waiters, token, ttl_ms, result)
  if not runs(once, token) then return '0' end
  redis.call('HSET', once, 'state', 'done', 'result', result)
  redis.call('HDEL', once, 'until', 'name')
  redis.call('PEXPIRE', once, ttl_ms)
  stores = true
  call_all(waiters)
  return '1'
end

local replies = {}
for i = 1, (#ARGV - BEFORE_FIRST) / ARGUMENTS do
  local key, at = BEFORE_FIRST_KEY + i * 2, BEFORE_FIRST + (i - 1) * ARGUMENTS
  replies[i] = attempt(finish, KEYS[key - 1], KEYS[key], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
end
local reply = table.concat(replies, '\n')
if stores then return done(reply) end
return reply
