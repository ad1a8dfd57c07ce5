-- namespace_close: reject all writes to a namespace for a while, extend that, or end it.
--
-- INCLUDE time
-- KEYS clock  string  last assigned version, then the time until which the namespace is closed
-- ARGV lease_ms  int  closed for this long from now; 0: open again
--
-- RETURNS a version above all assigned ones
local clock, lease_ms = KEYS[1], tonumber(ARGV[1])
local held = string.match(redis.call('GET', clock) or '0', '^%d+')
local last = whole(math.max(microseconds(), tonumber(held) + 1))
redis.call('SET', clock, lease_ms > 0 and last .. ' ' .. whole(microseconds() + lease_ms * 1000) or last)
return last
