-- kept_restore: renew the lease of a restore, count its steps, and store which keys are durable by argument.
--
-- If the server crashes and loses its last second, it may still have the mark, but not the last steps. The count shows
-- that: a server has all commands before a command that it has.
--
-- INCLUDE time
-- KEYS kept  hash  `s` or `k` by the key that is durable by argument, and the mark and `$steps` of namespace_join
-- ARGV token     text  token of the caller
-- ARGV lease_ms  int   length of the lease
-- ARGV step      int   number of this step, from 1; 0: only renew the lease
-- ARGV pairs...  text  a logical key, and its letter
--
-- RETURNS `noted`; or `taken` if another hub restores by now, or Redis has lost data again: nothing was stored
local kept, token, lease_ms, step = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local since, epoch, holder =
  string.match(redis.call('HGET', kept, '$joined') or '', '^recovering (%d+) (%d+) (%S+) %d+$')
if holder ~= token then return 'taken' end
if step > 0 then
  local before = tonumber(redis.call('HGET', kept, '$steps') or '-1')
  -- A repeat after a lost reply finds its own number.
  if before ~= step - 1 and before ~= step then return 'taken' end
  redis.call('HSET', kept, '$steps', whole(step))
end
local until_ms = whole(math.floor(microseconds() / 1000) + lease_ms)
redis.call('HSET', kept, '$joined', table.concat({ 'recovering', since, epoch, token, until_ms }, ' '))
if #ARGV > 3 then redis.call('HSET', kept, unpack(ARGV, 4, #ARGV)) end
return 'noted'
