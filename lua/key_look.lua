-- key_look: what to do about keys that were not found: each does not exist, or must be restored.
--
-- INCLUDE time joined
-- KEYS clock    string  the namespace's clock
-- KEYS kept     hash    `s` or `k` by the key that is durable by argument, and the mark of namespace_join
-- KEYS pairs... any     the requested key, or the key that shows its presence; and its state (see include/kept.lua)
-- ARGV token     text  token of the read leases that the caller gets
-- ARGV lease_ms  int   length of the leases
-- ARGV pairs...  text  of each key, the logical key and its durability mode (see include/kept.lua)
--
-- RETURNS a line for each key: `hot` it exists; `none` it does not exist; `lost` Redis may lack more than this key, join
--         first; `pending` it was lost here before the tier had it; `wait <ms>` another client restores it;
--         `load <ms since 1970>` the caller must restore it, and this is the time that decides about expiry
local clock, kept = KEYS[1], KEYS[2]
local token, lease_ms = ARGV[1], ARGV[2]
local has_clock, joined = redis.call('EXISTS', clock) == 1, is_joined(kept)

local function look(key, state, logical, mode)
  if not has_clock then return 'lost' end
  if redis.call('EXISTS', key) == 1 then return 'hot' end
  if not joined then return 'lost' end
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
end

local lines = {}
for i = 3, #KEYS, 2 do
  lines[#lines + 1] = look(KEYS[i], KEYS[i + 1], ARGV[i], ARGV[i + 1])
end
return table.concat(lines, '\n')
