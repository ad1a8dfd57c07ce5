-- waiters: the waiters of a name, first come first served; each is notified through its hub's channel.
--
-- A waiter is named `<client of its hub>/<number>`, with a `~` after it on a cluster; the queue is a sorted set by the
-- version of each arrival.
-- Needs mutation.lua before it.

local LINE_LIVES_MS = '120000'
local MOST_CALLED_AT_ONCE = 16

-- Whether a subscriber received the notification: a hub that is gone does not, so its waiters do not block the others.
-- On a cluster only subscribers of this server are counted, so there it counts as received.
local function call_waiter(waiter)
  local channel = string.sub(clock, 1, -6) .. 'wake:' .. string.match(waiter, '^[^/]*')
  return redis.call('PUBLISH', channel, waiter) > 0 or string.sub(waiter, -1) == '~'
end

-- Add a waiter, or keep it; waiters renew their entry well before the queue expires.
local function enlist(waiters, waiter)
  if not redis.call('ZSCORE', waiters, waiter) then
    redis.call('ZADD', waiters, whole(tick(1)), waiter)
  end
  redis.call('PEXPIRE', waiters, LINE_LIVES_MS)
end

-- Notify the first waiter, which stays queued until it leaves by itself; skip those whose hub is gone.
local function call_first(waiters)
  for _ = 1, MOST_CALLED_AT_ONCE do
    local first = redis.call('ZRANGE', waiters, 0, 0)[1]
    if not first or call_waiter(first) then return end
    redis.call('ZREM', waiters, first)
  end
end

-- Remove and notify all waiters: all of them can continue.
local function call_all(waiters)
  for _, waiter in ipairs(redis.call('ZRANGE', waiters, 0, -1)) do call_waiter(waiter) end
  redis.call('DEL', waiters)
end
