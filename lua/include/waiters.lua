-- waiters: who waits in line, first come first served; whoever's turn it is is called by its hub's channel.
--
-- A waiter is named `<client of its hub>/<number>`, with a `~` behind it on a cluster; a line is a sorted set by the
-- version under which each came.
-- Needs mutation.lua before it.

local LINE_LIVES_MS = '120000'
local MOST_CALLED_AT_ONCE = 16

-- Whether anybody heard the call: a hub that is gone does not, so its waiters do not hold up the others. On a cluster
-- only those who listen at this very server are counted, so there the call is taken to be heard.
local function call_waiter(waiter)
  local channel = string.sub(clock, 1, -6) .. 'wake:' .. string.match(waiter, '^[^/]*')
  return redis.call('PUBLISH', channel, waiter) > 0 or string.sub(waiter, -1) == '~'
end

-- Stand in line, or stay there; whoever waits comes back well before the line expires.
local function enlist(waiters, waiter)
  if not redis.call('ZSCORE', waiters, waiter) then
    redis.call('ZADD', waiters, whole(tick(1)), waiter)
  end
  redis.call('PEXPIRE', waiters, LINE_LIVES_MS)
end

-- Call the first in line, who stays there until it leaves by itself; those whose hub is gone are passed over.
local function call_first(waiters)
  for _ = 1, MOST_CALLED_AT_ONCE do
    local first = redis.call('ZRANGE', waiters, 0, 0)[1]
    if not first or call_waiter(first) then return end
    redis.call('ZREM', waiters, first)
  end
end

-- Take all out of line and call them: what they wait for is there for each.
local function call_all(waiters)
  for _, waiter in ipairs(redis.call('ZRANGE', waiters, 0, -1)) do call_waiter(waiter) end
  redis.call('DEL', waiters)
end
