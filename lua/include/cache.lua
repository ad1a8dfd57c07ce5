-- cache: how cached answers come and go at the server, so that who follows their log hears of it.
--
-- Needs time.lua and mutation.lua before it. `log` has the ids by the version of their last change, `endings` those
-- that are there by when they expire, `gone` those that are not by when the log may forget them (both milliseconds).

local GONE_FOR_MS = 86400000

local function now_ms()
  return math.floor(microseconds() / 1000)
end

-- Whoever follows the log hears for a day that this id is no more.
local function remember_gone(gone, id)
  redis.call('ZADD', gone, whole(now_ms() + GONE_FOR_MS), id)
end

-- A list of what is cached outlives every answer in it.
local function outlive(key, ttl_ms)
  local least = tonumber(ttl_ms) + 2 * GONE_FOR_MS
  if redis.call('PTTL', key) < least then redis.call('PEXPIRE', key, whole(least)) end
end
