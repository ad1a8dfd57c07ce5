-- changed: the end of a mutation of one key.
--
-- Needs time.lua and mutation.lua before it.

-- Of the first of the script's own keys: version, expiry, announcement, ledger.
local function changed(operation, key, ttl_ms, result)
  local version = whole(tick(1))
  if ttl_ms ~= '0' then redis.call('PEXPIRE', key, ttl_ms) end
  if keep_change then keep_change(1, version, ttl_ms) end
  announce(version, operation, key)
  return done(version .. ' ' .. result)
end
