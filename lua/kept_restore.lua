-- kept_restore: renew the lease of a restore, and store which keys are durable by argument.
--
-- INCLUDE time
-- KEYS kept  hash  `s` or `k` by the key that is durable by argument, and the mark of namespace_join
-- ARGV token     text  token of the caller
-- ARGV lease_ms  int   length of the lease
-- ARGV pairs...  text  a logical key, and its letter
--
-- RETURNS `noted`; or `taken` if another hub restores by now, or Redis was flushed again: nothing was stored
local kept, token, lease_ms = KEYS[1], ARGV[1], tonumber(ARGV[2])
local since, epoch, holder =
  string.match(redis.call('HGET', kept, '$joined') or '', '^recovering (%d+) (%d+) (%S+) %d+$')
if holder ~= token then return 'taken' end
local until_ms = whole(math.floor(microseconds() / 1000) + lease_ms)
redis.call('HSET', kept, '$joined', table.concat({ 'recovering', since, epoch, token, until_ms }, ' '))
if #ARGV > 2 then redis.call('HSET', kept, unpack(ARGV, 3, #ARGV)) end
return 'noted'
