-- kept_restore: a hub that restores a namespace renews its right to do so, and notes which keys last by argument.
--
-- INCLUDE time
-- KEYS kept  hash  `s` or `k` by the key that lasts by argument, and the mark of namespace_join
-- ARGV token     text  of the caller
-- ARGV lease_ms  int   how long it may go on without renewing
-- ARGV pairs...  text  a key as people write it, and its letter
--
-- RETURNS `noted`; or `taken` where another hub restores by now, or Redis was emptied again: nothing was noted
local kept, token, lease_ms = KEYS[1], ARGV[1], tonumber(ARGV[2])
local since, epoch, holder =
  string.match(redis.call('HGET', kept, '$joined') or '', '^recovering (%d+) (%d+) (%S+) %d+$')
if holder ~= token then return 'taken' end
local until_ms = whole(math.floor(microseconds() / 1000) + lease_ms)
redis.call('HSET', kept, '$joined', table.concat({ 'recovering', since, epoch, token, until_ms }, ' '))
if #ARGV > 2 then redis.call('HSET', kept, unpack(ARGV, 3, #ARGV)) end
return 'noted'
