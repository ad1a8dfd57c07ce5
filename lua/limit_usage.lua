-- limit_usage: what of a rate limit is used up, whichever algorithm its callers have, without knowing its numbers.
--
-- INCLUDE time window
-- KEYS limit  list, string  see include/window.lua and include/bucket.lua
--
-- RETURNS `<algorithm> <used> <milliseconds until nothing is used>`; empty if nothing is
-- FAILS   WRONGTYPE
local limit = KEYS[1]
local left_ms = redis.call('PTTL', limit)
if left_ms <= 0 then return '' end

if redis.call('TYPE', limit).ok == 'list' then
  local count = redis.call('LLEN', limit) - 1
  local now, longest = microseconds(), stamp_at(limit, 0)
  local used = count - first_after(limit, count, now - longest) + 1
  if used <= 0 then return '' end
  return 'sliding_window ' .. whole(used) .. ' ' .. whole((stamp_at(limit, count) + longest - now) / 1000)
end

-- A bucket is full when its key expires, and refills evenly: the rate itself is not stored.
local stamp, missing, parts = string.match(redis.call('GET', limit), '^(%d+) (%d+) (%d+)$')
local elapsed_ms = math.max(0, (microseconds() - tonumber(stamp)) / 1000)
local used = tonumber(missing) / tonumber(parts) * left_ms / (left_ms + elapsed_ms)
return 'token_bucket ' .. whole(math.ceil(used)) .. ' ' .. whole(left_ms)
