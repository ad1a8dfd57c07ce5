-- key_drop: forget the copy of a key, unless it is newer than what the tier has: the server was set back in time.
--
-- KEYS kept     hash    `s` or `k` by the key that lasts by argument
-- KEYS state    string  the key's state (see include/kept.lua)
-- KEYS key      any     the key, or where its presence shows
-- KEYS parts... any     what lies beside it
-- ARGV logical  text  the key as people write it
-- ARGV kind     text  `s` or `k` when it lasts by argument, else empty
-- ARGV stamp    int   of the tier's newest change of it
--
-- RETURNS `dropped`; `newer` when what is here is; `pending` when what is here has a change that the tier lacks, but
--         may lack one that the tier has: ask again when the tier has it
local kept, state, key = KEYS[1], KEYS[2], KEYS[3]
local logical, kind, stamp = ARGV[1], ARGV[2], tonumber(ARGV[3])

-- The version of the value under the key; nil when it is no value of ours.
local function version_here()
  local start = redis.pcall('GETRANGE', key, 0, 16)
  local digits = type(start) == 'string' and string.match(start, '^%d+ $')
  return digits and #digits == 17 and tonumber(digits) or nil
end

local what, held, letter, documents =
  string.match(redis.call('GET', state) or '', '^(%a+) (%d+) %d+ (%a) (%d+)$')
local version = version_here()
if what and tonumber(held) >= stamp then
  local changed_since = what == 'pending' and tonumber(held) > stamp
  return changed_since and not version and redis.call('EXISTS', key) == 1 and 'pending' or 'newer'
end
if kind ~= '' then redis.call('HSET', kept, logical, kind) end
if version and version >= stamp then return 'newer' end
if what then
  -- Whoever settles these documents counts them here; until then readers wait.
  redis.call('SET', state, table.concat({ 'pending', held, '0', letter, documents }, ' '))
else
  redis.call('UNLINK', state)
end
for i = 3, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 'dropped'
