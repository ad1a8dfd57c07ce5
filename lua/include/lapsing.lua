-- lapsing: those who have not been heard of for longer than they said are told of, once each, in order.
--
-- Needs mutation.lua before it.

local MOST_LAPSES = 100

-- Under what key the comings and goings of an actor are told: beside the namespace's own entry.
local function told_under(presence, who)
  return string.match(presence, '^.*:') .. who
end

-- Take out those whose time has passed by now, at most `MOST_LAPSES`; whether there may be more of them.
local function lapse(presence, facts, now)
  local gone = redis.call('ZRANGEBYSCORE', presence, '-inf', whole(now), 'LIMIT', 0, MOST_LAPSES)
  if #gone == 0 then return false end
  redis.call('HDEL', facts, unpack(gone))
  local version = tick(#gone)
  for i, who in ipairs(gone) do
    redis.call('ZREM', presence, who)
    announce(whole(version + i - 1), 'presence.lapse', told_under(presence, who))
  end
  return #gone == MOST_LAPSES
end
