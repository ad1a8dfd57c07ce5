-- version_take: assign versions to values from elsewhere, or raise the clock to theirs.
--
-- INCLUDE time joined
-- KEYS clock    string  last assigned version, then the time until which the namespace is closed, if it is
-- KEYS changes  stream  the namespace's change stream
-- KEYS kept     hash    the mark of namespace_join, with a durable tier
-- ARGV count   int  number of versions; 0: only raise the clock
-- ARGV above   int  each is higher than this
-- ARGV joined  0|1  1: only if Redis is known to be up to date with the durable tier
--
-- RETURNS the first of them; or `lost` if that is required and unknown: join first
local clock, changes, kept = KEYS[1], KEYS[2], KEYS[3]
local count, above, joined = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local held = redis.call('GET', clock)
if joined == '1' and not (held and is_joined(kept)) then return 'lost' end
local newest = redis.call('XREVRANGE', changes, '+', '-', 'COUNT', '1')[1]
local last = tonumber(held and string.match(held, '^%d+') or newest and string.match(newest[1], '^%d+') or '0')
local first = math.max(last + 1, above + 1, microseconds())
redis.call('SET', clock, whole(first + count - 1) .. (held and string.match(held, '^%d+( %d+)') or ''))
return whole(first)
