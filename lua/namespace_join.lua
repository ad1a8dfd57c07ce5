-- namespace_join: raise a namespace's clock to what the durable tier has seen, so that no version is given out twice.
--
-- INCLUDE time
-- KEYS clock    string  last version handed out, then the time until which the namespace is closed, if it is
-- KEYS changes  stream  the namespace's change stream
-- ARGV highest  int     the tier's highest stamp
--
-- RETURNS 1
local clock, changes, highest = KEYS[1], KEYS[2], tonumber(ARGV[1])
local held = redis.call('GET', clock)
local newest = redis.call('XREVRANGE', changes, '+', '-', 'COUNT', '1')[1]
local last = tonumber(held and string.match(held, '^%d+') or newest and string.match(newest[1], '^%d+') or '0')
if held and last >= highest then return 1 end
local closed = held and string.match(held, '^%d+( %d+)') or ''
redis.call('SET', clock, whole(math.max(last, highest, held and 0 or microseconds())) .. closed)
return 1
