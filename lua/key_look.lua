-- key_look: what to do about a key that was not found: it does not exist, or must be restored.
--
-- INCLUDE time joined
-- KEYS key    any     the requested key, or the key that shows its presence
-- KEYS clock  string  the namespace's clock
-- KEYS kept   hash    `s` or `k` by the key that is durable by argument, and the mark of namespace_join
-- KEYS state  string  the key's state (see include/kept.lua)
-- ARGV logical   text  the logical key
-- ARGV mode      text  its durability mode (see include/kept.lua)
-- ARGV token     text  token of the read lease, if the caller gets it
-- ARGV lease_ms  int   length of the lease
--
-- RETURNS `hot` it exists; `none` it does not exist; `lost` Redis may lack more than this key, join first; `pending` it
--         was lost here before the tier had it; `wait <ms>` another client restores it; `load <ms since 1970>` the
--         caller must restore it, and this is the time that decides about expiry
local key, clock, kept, state = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local logical, mode, token, lease_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if redis.call('EXISTS', clock) == 0 then return 'lost' end
if redis.call('EXISTS', key) == 1 then return 'hot' end
if not is_joined(kept) then return 'lost' end
if string.find('ad', mode, 1, true) and redis.call('HEXISTS', kept, logical) == 0 then return 'none' end

local what, rest = string.match(redis.call('GET', state) or '', '^(%a*) ?(.*)$')
if what == 'missing' or what == 'deleted' then return 'none' end
if what == 'pending' then
  local expires = tonumber(string.match(rest, '^%d+ (%d+)'))
  return expires > 0 and expires * 1000 <= microseconds() and 'none' or 'pending'
end
if what == 'loading' and rest ~= token then return 'wait ' .. whole(redis.call('PTTL', state)) end
redis.call('SET', state, 'loading ' .. token, 'PX', lease_ms)
return 'load ' .. whole(math.floor(microseconds() / 1000))
