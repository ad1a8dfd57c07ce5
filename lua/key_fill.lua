-- key_fill: restore a key from the durable tier, unless the key was changed in the meantime.
--
-- Without parts and absent_ms, only the read lease is released.
--
-- INCLUDE time
-- KEYS key     any     the key, or the key that shows its presence
-- KEYS clock   string  the namespace's clock
-- KEYS kept    hash    the mark of namespace_join; `$whole <key>`: the next change sends the whole list to the tier
-- KEYS state   string  the key's state, which holds the read lease
-- KEYS parts... any    pairs: a staged part, and its final key
-- ARGV token     text  token of the read lease
-- ARGV expires   int   milliseconds since 1970 at which the key expires; 0: never
-- ARGV cache_ms  int   this copy expires after this, the tier keeps the key; 0: with the key
-- ARGV absent_ms int   store for so long that the tier lacks the key; 0: it has it
-- ARGV logical   text  the logical key of a list; empty: not a list
-- ARGV stamp     int   stamp of the list's last change in the tier
--
-- RETURNS `filled`; `overtaken` if another client wrote, the lease expired, or a part was lost
local key, clock, kept, state = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, expires, cache_ms, absent_ms, logical, stamp = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local FIRST_PART = 5

local function may_fill()
  local closed_until = string.match(redis.call('GET', clock) or '', '^%d+ (%d+)')
  if closed_until and tonumber(closed_until) > microseconds() then return false end
  if redis.call('GET', state) ~= 'loading ' .. token or redis.call('EXISTS', key) == 1 then return false end
  for i = FIRST_PART, #KEYS, 2 do
    if redis.call('EXISTS', KEYS[i]) == 0 then return false end
  end
  return true
end

if not may_fill() then
  for i = FIRST_PART, #KEYS, 2 do redis.call('UNLINK', KEYS[i]) end
  return 'overtaken'
end
if absent_ms ~= '0' then
  redis.call('SET', state, 'missing', 'PX', absent_ms)
  return 'filled'
end
-- If the present data has not changed a list yet, an item may still arrive in the tier from data that was lost. The
-- list would then have one item too many, and its oldest one would be dropped.
local epoch = string.match(redis.call('HGET', kept, '$joined') or '', '^%a+ %d+ (%d+)')
if logical ~= '' and epoch and tonumber(stamp) < tonumber(epoch) then
  redis.call('HSET', kept, '$whole ' .. logical, 'whole')
end
redis.call('DEL', state)
for i = FIRST_PART, #KEYS, 2 do
  redis.call('RENAME', KEYS[i], KEYS[i + 1])
  if cache_ms ~= '0' then
    redis.call('PEXPIRE', KEYS[i + 1], cache_ms)
  elseif expires ~= '0' then
    redis.call('PEXPIREAT', KEYS[i + 1], expires)
  else
    redis.call('PERSIST', KEYS[i + 1])
  end
end
if #KEYS >= FIRST_PART and cache_ms ~= '0' then
  redis.call('SET', state, 'cached', 'PX', cache_ms)
elseif #KEYS >= FIRST_PART and expires ~= '0' then
  redis.call('SET', state, 'expires')
  redis.call('PEXPIREAT', state, expires)
elseif #KEYS >= FIRST_PART then
  redis.call('SET', state, 'kept')
end
return 'filled'
