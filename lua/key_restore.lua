-- key_restore: write keys from elsewhere with their versions, unless something as new exists.
--
-- INCLUDE time joined header record
-- KEYS clock    string  last assigned version, then the time until which the namespace is closed, if it is
-- KEYS changes  stream  the namespace's change stream
-- KEYS kept     hash    the mark of namespace_join, with a durable tier
-- KEYS keys...  any     pairs: the key, and the staged structure (for a string: the same)
-- ARGV actor    text  actor of the change
-- ARGV cap      int   approximate length of the change stream
-- ARGV replace  0|1   1: also replace data without versions: structures, counters, foreign strings
-- ARGV joined   0|1   1: only if Redis is known to be up to date with the durable tier
-- ARGV rows...  blob  for each pair: version (0: none), expiry in milliseconds since 1970 (0: never), the string
--
-- RETURNS a letter a pair: `y` it was written, `n` the existing one stays, `e` it has expired, `g` the
--         staged data is gone; or `lost` if that is required and unknown: join first
-- FAILS   CLOSED
local clock, changes, kept = KEYS[1], KEYS[2], KEYS[3]
local actor, cap, replace, joined = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local held_clock = redis.call('GET', clock)
if joined == '1' and not (held_clock and is_joined(kept)) then return 'lost' end
local closed_until = string.match(held_clock or '', '^%d+ (%d+)')
if closed_until and tonumber(closed_until) > microseconds() then
  return redis.error_reply('CLOSED the namespace is being cleared')
end
local newest = redis.call('XREVRANGE', changes, '+', '-', 'COUNT', '1')[1]
local last = tonumber(held_clock and string.match(held_clock, '^%d+') or '0')
if newest then last = math.max(last, tonumber(string.match(newest[1], '^%d+'))) end
for i = 5, #ARGV, 3 do last = math.max(last, tonumber(ARGV[i])) end

local function logical(key)
  local opening, closing = string.find(key, '{', 1, true), string.find(key, '}', 1, true)
  return string.sub(key, opening + 1, closing - 1) .. string.sub(key, closing + 1)
end

-- Whether a value of that version may replace the present data of a key.
local function gives_way(key, version)
  local current = held(key)
  if current == '' then return true end
  if current and current ~= 'x' and version ~= '0' then return tonumber(current) < tonumber(version) end
  return replace == '1'
end

local function restore(ready, key, version, expires, text)
  local is_over = expires ~= '0' and tonumber(expires) * 1000 <= microseconds()
  if is_over or not gives_way(key, version) then
    if ready ~= key then redis.call('UNLINK', ready) end
    return is_over and 'e' or 'n'
  end
  if ready == key then
    redis.call('SET', key, text)
  elseif redis.call('EXISTS', ready) == 0 then
    return 'g'
  else
    redis.call('RENAME', ready, key)
    redis.call('PERSIST', key)
  end
  if expires ~= '0' then redis.call('PEXPIREAT', key, expires) end
  last = math.max(last + 1, microseconds())
  redis.call('XADD', changes, 'MAXLEN', '~', cap, whole(last) .. '-0', 'op', 'restore', 'key', logical(key), 'by', actor)
  return 'y'
end

local letters = {}
for i = 4, #KEYS, 2 do
  local at = 5 + (i - 4) / 2 * 3
  letters[#letters + 1] = restore(KEYS[i + 1], KEYS[i], ARGV[at], ARGV[at + 1], ARGV[at + 2])
end
redis.call('SET', clock, whole(last))
return table.concat(letters)
