-- limit_window_take: admit a cost, if the limit has enough left in the window that ends now.
--
-- INCLUDE time ledger mutation window names naming
-- KEYS log  list  see include/window.lua
-- ARGV limit      int  highest cost in any window
-- ARGV window_us  int  length of the window
-- ARGV cost       int  requested cost
--
-- RETURNS `<1|0> <left of the limit> <microseconds until it may be admitted>`
-- FAILS   CLOSED, STALE, WRONGTYPE
local log = KEYS[4]
local limit, window, cost = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])

local MOST_KEPT = 10000
local MOST_AT_ONCE = 1000

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
return done('1 ' .. whole(limit - used - cost) .. ' 0')
