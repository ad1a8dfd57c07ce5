-- key_delete: delete a key of any type.
--
-- INCLUDE time ledger mutation header keeping changed record
-- KEYS key  any  the key to delete
--
-- RETURNS `<version> <path of the blob it held, if any>`, or `0 ` if it did not exist
-- FAILS   CLOSED, STALE
local key = KEYS[4]
if is_cold(1) then return 'COLD' end
local kind = type_of(key)
if kind == 'none' then return '0 ' end
local blob
if kind == 'string' then
  local _, _, path = held(key)
  blob = path
end
redis.call('UNLINK', key)
return changed('delete', key, '0', blob or '')
