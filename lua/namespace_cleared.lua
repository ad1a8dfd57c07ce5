-- namespace_cleared: open a cleared namespace, and announce that in one change.
--
-- INCLUDE time
-- KEYS clock    string  last assigned version
-- KEYS changes  stream  the namespace's change stream
-- KEYS names    zset    the index of the names in use, which begins again (see include/names.lua)
-- ARGV actor    text  the actor that cleared it
-- ARGV logical  text  the namespace, for the announcement
--
-- RETURNS the version of the clearing
local clock, changes, names, actor, logical = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]
local version = microseconds()
local last = tonumber(string.match(redis.call('GET', clock) or '0', '^%d+'))
if version <= last then version = last + 1 end
redis.call('SET', clock, whole(version))
redis.call('DEL', names)
redis.call('ZADD', names, '0', '$complete')
redis.call('XADD', changes, 'MAXLEN', '1', whole(version) .. '-0', 'op', 'clear', 'key', logical, 'by', actor)
return whole(version)
