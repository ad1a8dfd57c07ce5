-- cache_put: store an answer in place of an older one for its prompt, and delete a few expired answers.
--
-- INCLUDE time ledger mutation cache
-- KEYS record   hash    the answer
-- KEYS log      zset    see include/cache.lua
-- KEYS endings  zset    likewise
-- KEYS gone     zset    likewise
-- KEYS place    string  name of this namespace's own index; absent while it shares one
-- ARGV id         text  id of the answer
-- ARGV ttl_ms     int   its lifetime
-- ARGV fields...  blob  field, value, field, value, ...
--
-- RETURNS its version
-- FAILS   CLOSED, STALE, WRONGTYPE
local record, log, endings, gone, place = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local id, ttl_ms = ARGV[6], ARGV[7]
local CLEARED_AT_ONCE = 16

-- An answer that expires in this second is left to a later call, so that it is not reported too early.
local expired = redis.call('ZRANGEBYSCORE', endings, '-inf', whole(now_ms() - 1000), 'LIMIT', '0', CLEARED_AT_ONCE)
local obsolete = redis.call('ZRANGEBYSCORE', gone, '-inf', whole(now_ms()), 'LIMIT', '0', CLEARED_AT_ONCE)
local first = tick(#expired + 1)
for i, other in ipairs(expired) do
  redis.call('ZREM', endings, other)
  redis.call('ZADD', log, whole(first + i - 1), other)
  remember_gone(gone, other)
end
for _, other in ipairs(obsolete) do
  redis.call('ZREM', gone, other)
  redis.call('ZREM', log, other)
end

local version = whole(first + #expired)
local fields = { 'version', version }
if redis.call('EXISTS', place) == 0 then fields[3], fields[4] = 'pool', '1' end
for i = 8, #ARGV do fields[#fields + 1] = ARGV[i] end
redis.call('DEL', record)
redis.call('HSET', record, unpack(fields))
redis.call('PEXPIRE', record, ttl_ms)
redis.call('ZADD', log, version, id)
redis.call('ZADD', endings, whole(now_ms() + tonumber(ttl_ms)), id)
redis.call('ZREM', gone, id)
for i = 5, 7 do outlive(KEYS[i], ttl_ms) end
announce(version, 'cache.put', record)
return done(version)
