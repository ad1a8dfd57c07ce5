-- key_drop: drop the copy of a key, unless it is newer than in the tier: the server had an old snapshot.
--
-- INCLUDE header record
-- KEYS kept     hash    `s` or `k` by the key that is durable by argument, and the mark of namespace_join
-- KEYS state    string  the key's state (see include/kept.lua)
-- KEYS key      any     the key, or the key that shows its presence
-- KEYS parts... any     its parts
-- ARGV logical  text  the logical key
-- ARGV kind     text  `s` or `k` if it is durable by argument; empty: by rule, or deleted
-- ARGV stamp    int   stamp of the tier's newest change of it
-- ARGV token    text  token of the restoring hub; empty: not for a restore
--
-- RETURNS `dropped`; `taken` if another hub restores by now; `newer` if the copy is newer; `pending` if the copy has a
--         change that the tier lacks, but may lack one that the tier has: call again when the tier has it
local kept, state, key = KEYS[1], KEYS[2], KEYS[3]
local logical, kind, stamp, token = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
if token ~= '' then
  local mark = redis.call('HGET', kept, '$joined') or ''
  if string.match(mark, '^recovering %d+ %d+ (%S+) %d+$') ~= token then return 'taken' end
end

local text = redis.call('GET', state) or ''
-- No copy of what the tier has. Only a restore meets one that is older: the server had an old snapshot.
if token == '' and text == 'ephemeral' and redis.call('EXISTS', key) == 1 then return 'newer' end
local what, changed_at, letter, documents = string.match(text, '^(%a+) (%d+) %d+ (%a) (%d+)$')
-- The version of a value without a header is unknown.
local version = tonumber(held(key) or '')
if what and tonumber(changed_at) >= stamp then
  local changed_since = what == 'pending' and tonumber(changed_at) > stamp
  return changed_since and not version and redis.call('EXISTS', key) == 1 and 'pending' or 'newer'
end
-- Its kind stays stored: since the caller has read the tier, the key may have been created again.
if kind ~= '' then redis.call('HSET', kept, logical, kind) end
if version and version >= stamp then return 'newer' end
if what then
  -- Settling these documents counts them here; until then readers wait.
  redis.call('SET', state, table.concat({ 'pending', changed_at, '0', letter, documents }, ' '))
else
  redis.call('UNLINK', state)
end
for i = 3, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 'dropped'
