-- limit_window_look: the remaining limit in the window that ends now.
--
-- INCLUDE time window
-- KEYS log  list  see include/window.lua
-- ARGV limit      int  highest cost in any window
-- ARGV window_us  int  length of the window
--
-- RETURNS `<left of the limit> <microseconds until the next one may be admitted>`
-- FAILS   WRONGTYPE
local log = KEYS[1]
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])

local now = microseconds()
local count = math.max(redis.call('LLEN', log) - 1, 0)
if count > 0 then now = math.max(now, stamp_at(log, count)) end
local used = count - first_after(log, count, now - window) + 1
if used < limit then return whole(limit - used) .. ' 0' end
return '0 ' .. whole(stamp_at(log, count - limit + 1) + window - now)
