-- key_expire: set or remove the expiry of a key of any type.
--
-- INCLUDE time ledger mutation header keeping changed
-- KEYS key  any  the key
-- ARGV ttl_ms  int  expire after this; 0: never expire
--
-- RETURNS `<version> <1|0>`: whether something changed (1), version 0 if not
-- FAILS   CLOSED, STALE
local key, ttl_ms = KEYS[4], ARGV[6]
if is_cold(1) then return 'COLD' end
local answer
if ttl_ms == '0' then
  if is_cached(1) then return '0 0' end
  answer = redis.call('PERSIST', key)
else
  answer = redis.call('PEXPIRE', key, ttl_ms)
end
if answer == 0 then return '0 0' end
return changed(ttl_ms == '0' and 'persist' or 'expire', key, ttl_ms, '1')
