-- turns: the turn in a queue of waiters: the first one is notified and then has some time to come.
--
-- Needs time.lua and waiters.lua before it. The score of a notified waiter is the end of its turn, negated: so it stays
-- first, since others have the version of their arrival, or 0.

local TURN_LASTS_US = 10000000
local MOST_PASSED_OVER = 100
-- So long after its turn a waiter keeps its place before others of its own hub: that hub sends calls, so it is only
-- slow.
local GRACE_US = 50000000

-- Whether the first waiter did not come: its turn is over. The first waiter decides for the whole queue.
local function missed_its_turn(score)
  return score < 0 and -score <= microseconds()
end

local function hub_of(waiter)
  return string.match(waiter, '^[^/]*')
end

-- Notify the first waiter. Skip waiters whose hub is gone, and waiters that were notified and did not come, with the
-- following waiters of that hub: it may be frozen. The hub of the caller, if there is one, is not frozen: its first
-- waiter is notified once more instead, and skipped alone after a minute.
local function call_next(waiters, asker)
  local frozen
  for _ = 1, MOST_PASSED_OVER do
    local first = redis.call('ZRANGE', waiters, 0, 0, 'WITHSCORES')
    if not first[1] then return nil end
    local score, hub = tonumber(first[2]), hub_of(first[1])
    local missed = missed_its_turn(score)
    if missed and asker and hub == hub_of(asker) then
      if -score + GRACE_US > microseconds() and call_waiter(first[1]) then
        return first[1], microseconds() + TURN_LASTS_US
      end
    else
      if missed then frozen = hub end
      if hub ~= frozen and call_waiter(first[1]) then
        local turn_ends = score < 0 and -score or microseconds() + TURN_LASTS_US
        redis.call('ZADD', waiters, whole(-turn_ends), first[1])
        return first[1], turn_ends
      end
    end
    redis.call('ZREM', waiters, first[1])
  end
end
