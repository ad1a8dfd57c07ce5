-- turns: whose turn it is in a line whose first one is called and then has a while to come.
--
-- Needs time.lua and waiters.lua before it. The score of who was called is the end of its turn, negated: it
-- stays first that way, since those who were not called have the version under which they came, or 0.

local TURN_LASTS_US = 10000000
local MOST_PASSED_OVER = 100
-- So long after its turn a waiter keeps its place before the others of its own hub, which asks and so is only slow.
local GRACE_US = 50000000

-- Whether the first in line was called in vain: its turn is over. A line as a whole is judged by its first.
local function missed_its_turn(score)
  return score < 0 and -score <= microseconds()
end

local function hub_of(waiter)
  return string.match(waiter, '^[^/]*')
end

-- Call the first in line. Those whose hub is gone are passed over, and so are those who were called and did not
-- come, with the others of that hub that stand behind them: it may be frozen. The hub of the one who asks, if there is
-- one, is not: its first is called once more instead, and passed over alone after a minute.
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
