-- limit_window_take: admit costs, each if its limit has enough left in the window that ends now.
--
-- Requests that one client makes at the same moment share one call; they are independent.
--
-- INCLUDE time ledger mutation window names naming refusing
-- KEYS logs...      list  of each request: see include/window.lua
-- ARGV requests...  int   of each request: the highest cost in any window, the length of the window in microseconds,
--                         the requested cost
--
-- RETURNS one line a request: `<1|0> <left of the limit> <microseconds until it may be admitted>`, or `E <error>` if
--         another client has written to its key
-- FAILS   CLOSED, STALE
local BEFORE_FIRST_KEY, BEFORE_FIRST, ARGUMENTS = 3, 5, 3
local MOST_KEPT = 10000
local MOST_AT_ONCE = 1000

local admits = false
local function take(log, limit, window, cost)
  local now, known, longest = microseconds(), 0, window
  local count = redis.call('LLEN', log) - 1
  local is_new = count < 0
  if is_new then count = 0 end
  if count > 0 then
    -- A clock that was set back must not admit more.
    now = math.max(now, stamp_at(log, count))
    known = stamp_at(log, 0)
    longest = math.max(window, known)
  end

  local first = first_after(log, count, now - window)
  local used = count - first + 1
  if used + cost > limit then
    -- When this one has left the window, there is room.
    local blocking = stamp_at(log, count - limit + cost)
    return '0 ' .. whole(math.max(0, limit - used)) .. ' ' .. whole(blocking + window - now)
  end

  -- Others may use a longer window, so delete only entries older than the longest one; none may use more than is stored.
  if longest > window then first = first_after(log, count, now - longest) end
  local old = math.max(first - 1, count + cost - MOST_KEPT)
  if old > 0 then redis.call('LTRIM', log, old, -1) end
  if is_new then
    redis.call('RPUSH', log, whole(longest))
    created(log)
  elseif old > 0 or known ~= longest then
    redis.call('LSET', log, 0, whole(longest))
  end
  local left = cost
  while left > 0 do
    local stamps = {}
    for i = 1, math.min(left, MOST_AT_ONCE) do stamps[i] = whole(now) end
    redis.call('RPUSH', log, unpack(stamps))
    left = left - #stamps
  end
  redis.call('PEXPIRE', log, whole(math.ceil(longest / 1000) + 1))
  admits = true
  return '1 ' .. whole(limit - used - cost) .. ' 0'
end

local replies = {}
for i = 1, #KEYS - BEFORE_FIRST_KEY do
  local at = BEFORE_FIRST + (i - 1) * ARGUMENTS
  replies[i] = attempt(take, KEYS[BEFORE_FIRST_KEY + i], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]))
end
local reply = table.concat(replies, '\n')
if admits then return done(reply) end
return reply
