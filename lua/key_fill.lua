-- key_fill: restore keys from the durable tier, each unless it was changed in the meantime.
--
-- A part of a key comes with the call, or was staged before (key_stage) if it is long.
--
-- INCLUDE time
-- KEYS clock    string  the namespace's clock
-- KEYS kept     hash    the mark of namespace_join; `$whole <key>`: the next change sends the whole list to the tier
-- KEYS keys...  any     of each key: the key, or the key that shows its presence; its state, which holds the read
--                       lease; for each of its parts the final key, and behind it the staged part, if it is staged
-- ARGV token      text  token of the read leases
-- ARGV cache_ms   int   copies of keys that do not expire in the tier expire after this
-- ARGV absent_ms  int   store for so long that the tier lacks a key
-- ARGV words...   blob  of each key: `<what> <expires> <stamp> <parts>`, the logical key of a list (else empty), and for
--                       each part that comes with the call: its command, the number of its arguments, these. `what` is
--                       `cache` or `restore` (the copy expires after cache_ms, or with the key), `absent` (the tier
--                       lacks it) or `release` (only the lease ends); `expires` milliseconds since 1970, 0: never;
--                       `stamp` that of a list's last change in the tier; `parts` a letter for each: h here, s staged
--
-- RETURNS a letter for each key: `f` filled; `o` overtaken: another client wrote, the lease expired, or a part was lost
local clock, kept = KEYS[1], KEYS[2]
local token, cache_ms, absent_ms = ARGV[1], ARGV[2], ARGV[3]
local closed_until = string.match(redis.call('GET', clock) or '', '^%d+ (%d+)')
local is_closed = closed_until and tonumber(closed_until) > microseconds()

local key_at, word_at = 3, 4
local function next_key()
  key_at = key_at + 1
  return KEYS[key_at - 1]
end
local function next_word()
  word_at = word_at + 1
  return ARGV[word_at - 1]
end

local function parts_of(letters)
  local parts = {}
  for letter in string.gmatch(letters, '.') do
    local part = { place = next_key() }
    if letter == 's' then
      part.staged = next_key()
    else
      part.command, part.first = next_word(), word_at + 1
      word_at = part.first + tonumber(ARGV[word_at])
      part.last = word_at - 1
    end
    parts[#parts + 1] = part
  end
  return parts
end

local function is_there(staged)
  return redis.call('EXISTS', staged) == 1
end
local function drop(staged)
  redis.call('UNLINK', staged)
end

local function may_fill(key, state, parts)
  if is_closed or redis.call('GET', state) ~= 'loading ' .. token or redis.call('EXISTS', key) == 1 then return false end
  for _, part in ipairs(parts) do
    if part.staged and not is_there(part.staged) then return false end
  end
  return true
end

-- If the present data has not changed a list yet, an item may still arrive in the tier from data that was lost. The
-- list would then have one item too many, and its oldest one would be dropped.
local function send_whole(logical, stamp)
  local epoch = string.match(redis.call('HGET', kept, '$joined') or '', '^%a+ %d+ (%d+)')
  if epoch and tonumber(stamp) < tonumber(epoch) then redis.call('HSET', kept, '$whole ' .. logical, 'whole') end
end

local function move(staged, place)
  redis.call('RENAME', staged, place)
end

local function write(place, part, what, expires)
  if part.staged then
    move(part.staged, place)
    redis.call('PERSIST', place)
  elseif part.command == 'SET' and what == 'cache' then
    redis.call('SET', place, ARGV[part.first], 'PX', cache_ms)
    return
  else
    if part.command ~= 'SET' then redis.call('DEL', place) end
    redis.call(part.command, place, unpack(ARGV, part.first, part.last))
  end
  if what == 'cache' then
    redis.call('PEXPIRE', place, cache_ms)
  elseif expires ~= '0' then
    redis.call('PEXPIREAT', place, expires)
  end
end

local function fill(key, state)
  local what, expires, stamp, letters = string.match(next_word(), '^(%l+) (%d+) (%d+) (%l*)$')
  local logical, parts = next_word(), parts_of(letters)
  if not may_fill(key, state, parts) then
    for _, part in ipairs(parts) do
      if part.staged then drop(part.staged) end
    end
    return 'o'
  end
  if logical ~= '' then send_whole(logical, stamp) end
  for _, part in ipairs(parts) do write(part.place, part, what, expires) end
  if what == 'absent' then
    redis.call('SET', state, 'missing', 'PX', absent_ms)
  elseif what == 'cache' then
    redis.call('SET', state, 'cached', 'PX', cache_ms)
  elseif what == 'release' then
    redis.call('DEL', state)
  elseif expires ~= '0' then
    redis.call('SET', state, 'expires')
    redis.call('PEXPIREAT', state, expires)
  else
    redis.call('SET', state, 'kept')
  end
  return 'f'
end

local answers = {}
while key_at <= #KEYS do
  local key, state = next_key(), next_key()
  answers[#answers + 1] = fill(key, state)
end
return table.concat(answers)
