-- object_write: store an object of a user's model whole, as a hash or as a JSON document.
--
-- INCLUDE time ledger mutation changed
-- KEYS object  any  where it is stored
-- ARGV ttl_ms      int   expire after this; 0 leaves the expiry as it is
-- ARGV condition   text  `nx`: only if it does not exist, `xx`: only if it exists; empty: always
-- ARGV form        text  `hash` or `json`
-- ARGV content...  blob  of a hash its fields, each before its value; else one JSON text
--
-- RETURNS `<version> 1`, or `0 0` if the condition is not met
-- FAILS   CLOSED, STALE
local key = KEYS[4]
local ttl_ms, condition, form = ARGV[6], ARGV[7], ARGV[8]
local exists = redis.call('EXISTS', key) == 1
if (condition == 'nx' and exists) or (condition == 'xx' and not exists) then return '0 0' end

local left_ms = redis.call('PTTL', key)
local first = 9
if form == 'json' then
  redis.call('JSON.SET', key, '$', ARGV[first])
else
  redis.call('UNLINK', key)
  for i = first, #ARGV, 2 do redis.call('HSET', key, ARGV[i], ARGV[i + 1]) end
end
if ttl_ms == '0' and left_ms > 0 then ttl_ms = whole(left_ms) end
return changed('om.save', key, ttl_ms, '1')
