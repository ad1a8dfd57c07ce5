-- key_fill: put what the durable tier has back under its key, unless anything happened to the key in the meantime.
--
-- INCLUDE time
-- KEYS key     any     where it belongs, or where its presence shows
-- KEYS clock   string  the namespace's clock
-- KEYS state   string  the key's state, which holds the read lease
-- KEYS parts... any    pairs: where a part was made ready, and where it belongs
-- ARGV token     text  of the read lease
-- ARGV ttl_ms    int   expire after this; 0 never
-- ARGV cache_ms  int   this copy expires after this, while the tier keeps the key; 0 with the key
-- ARGV absent_ms int   the tier has nothing: know so for this long; 0 it has
--
-- RETURNS `filled`, or `overtaken` when somebody wrote or the lease ended
local key, clock, state = KEYS[1], KEYS[2], KEYS[3]
local token, ttl_ms, cache_ms, absent_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local closed_until = string.match(redis.call('GET', clock) or '', '^%d+ (%d+)')
local closed = closed_until and tonumber(closed_until) > microseconds()
if closed or redis.call('GET', state) ~= 'loading ' .. token or redis.call('EXISTS', key) == 1 then
  for i = 4, #KEYS, 2 do redis.call('UNLINK', KEYS[i]) end
  return 'overtaken'
end
if absent_ms ~= '0' then
  redis.call('SET', state, 'missing', 'PX', absent_ms)
  return 'filled'
end
local life_ms = cache_ms ~= '0' and cache_ms or ttl_ms
for i = 4, #KEYS, 2 do
  redis.call('RENAME', KEYS[i], KEYS[i + 1])
  if life_ms ~= '0' then redis.call('PEXPIRE', KEYS[i + 1], life_ms) else redis.call('PERSIST', KEYS[i + 1]) end
end
if cache_ms ~= '0' then redis.call('SET', state, 'cached', 'PX', cache_ms) else redis.call('DEL', state) end
return 'filled'
