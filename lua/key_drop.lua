-- key_drop: forget the copy of a key, unless it is newer than what the tier has: the server was set back in time.
--
-- INCLUDE header record
-- KEYS kept     hash    `s` or `k` by the key that lasts by argument, and the mark of namespace_join
-- KEYS state    string  the key's state (see include/kept.lua)
-- KEYS key      any     the key, or where its presence shows
-- KEYS parts... any     what lies beside it
-- ARGV logical  text  the key as people write it
-- ARGV kind     text  `s` or `k` when it lasts by argument; empty: by rule, or it is gone
-- ARGV stamp    int   of the tier's newest change of it
-- ARGV token    text  of the hub that restores the namespace; empty: on no such behalf
--
-- RETURNS `dropped`; `taken` when another hub restores by now; `newer` when what is here is; `pending` when what is here has a change that the tier lacks, but
--         may lack one that the tier has: ask again when the tier has it
local kept, state, key = KEYS[1], KEYS[2], KEYS[3]
local logical, kind, stamp, token = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
if token ~= '' then
  local mark = redis.call('HGET', kept, '$joined') or ''
  if string.match(mark, '^recovering %d+ %d+ (%S+) %d+$') ~= token then return 'taken' end
end

local what, changed_at, letter, documents =
  string.match(redis.call('GET', state) or '', '^(%a+) (%d+) %d+ (%a) (%d+)$')
-- Of what is no record of ours the version is not known.
local version = tonumber(held(key) or '')
if what and tonumber(changed_at) >= stamp then
  local changed_since = what == 'pending' and tonumber(changed_at) > stamp
  return changed_since and not version and redis.call('EXISTS', key) == 1 and 'pending' or 'newer'
end
-- That it lasts is not forgotten: since the caller has asked the tier, the key may have been made anew.
if kind ~= '' then redis.call('HSET', kept, logical, kind) end
if version and version >= stamp then return 'newer' end
if what then
  -- Whoever settles these documents counts them here; until then readers wait.
  redis.call('SET', state, table.concat({ 'pending', changed_at, '0', letter, documents }, ' '))
else
  redis.call('UNLINK', state)
end
for i = 3, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 'dropped'
