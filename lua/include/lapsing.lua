-- lapsing: announce actors without a heartbeat for longer than their ttl, once each, in order.
--
-- Needs mutation.lua and packing.lua before it.

local MOST_LAPSES = 100

-- The key of announcements about an actor.
local function announcement_key(presence, member)
  return string.match(presence, '^.*:') .. member
end

-- Remove lapsed actors, at most `MOST_LAPSES`; returns whether there may be more.
local function lapse(presence, facts, now)
  local gone = redis.call('ZRANGEBYSCORE', presence, '-inf', whole(now), 'LIMIT', 0, MOST_LAPSES)
  if #gone == 0 then return false end
  redis.call('HDEL', facts, unpack(gone))
  local version = tick(#gone)
  if #gone > 1 then packet = {} end
  for i, member in ipairs(gone) do
    redis.call('ZREM', presence, member)
    announce(whole(version + i - 1), 'presence.lapse', announcement_key(presence, member))
  end
  return #gone == MOST_LAPSES
end
