-- cache: additions and deletions of cached answers, with a log for readers.
--
-- Needs time.lua and mutation.lua before it. `log` has the ids by the version of their last change, `endings` the
-- ids of existing answers by expiry, `gone` the ids of deleted ones by the end of their log entry (both milliseconds).

local GONE_FOR_MS = 86400000

local function now_ms()
  return math.floor(microseconds() / 1000)
end

-- Readers of the log can see for a day that this id was deleted.
local function remember_gone(gone, id)
  redis.call('ZADD', gone, whole(now_ms() + GONE_FOR_MS), id)
end

-- An index of cached answers lives longer than every answer in it.
local function outlive(key, ttl_ms)
  local least = tonumber(ttl_ms) + 2 * GONE_FOR_MS
  if redis.call('PTTL', key) < least then redis.call('PEXPIRE', key, whole(least)) end
end
