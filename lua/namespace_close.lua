-- namespace_close: refuse all writers of a namespace for a while, or prolong that, or end it.
--
-- INCLUDE time
-- KEYS clock  string  last version handed out, then the time until which the namespace is closed
-- ARGV lease_ms  int  closed for this long from now; 0: open again
--
-- RETURNS 1
local clock, lease_ms = KEYS[1], tonumber(ARGV[1])
local last = string.match(redis.call('GET', clock) or whole(microseconds()), '^%d+')
if lease_ms > 0 then last = last .. ' ' .. whole(microseconds() + lease_ms * 1000) end
redis.call('SET', clock, last)
return 1
