-- kept: the outbox entries of a change, written in the same step.
--
-- A script announces the newest version that it leaves here: a version that the tier has and the change stream never
-- had looks like one that Redis has lost (see namespace_join). Needs mutation.lua and header.lua before it. It is
-- included in scripts that say `INCLUDE keeping` if a durable tier is used, otherwise unkept.lua is. Its keys and
-- arguments follow those of the script, and are removed here. A key's state is `pending <stamp> <expires> <kind>
-- <documents>` until the tier has all waiting documents of it, and `deleted` with the same words after its deletion;
-- then empty, or `missing` (it does not exist), `loading <token>` (it is being restored), `cached` (it expires here,
-- but not in the tier), `expires` (it expires; stored for knowledge only), `kept` (of a session: the tier has it),
-- `ephemeral` (it is only here, unlike its rule).
--
-- KEYS outbox     stream  changes that the tier does not have yet: one entry a step, a field a document
-- KEYS kept       hash    `s` or `k` by the key that is durable by argument and not by rule; the mark of
--                         namespace_join; `$whole <key>` of a list whose next change sends all of it (see key_fill)
-- KEYS states...  string  the state of each of the first own keys
-- ARGV modes    text  a letter for each of these: s, k, l durable (session, knowledge, log); S, K by argument; a if it
--                     was before; d no longer; D no longer, unlike its rule
-- ARGV through  text  kinds for which the caller waits
-- ARGV limit    int   most waiting entries
-- ARGV epoch    text  epoch of the data that the caller has joined (see namespace_join); empty: any
-- RETURNS LOST: the namespace must be joined first, or this is other data than the caller has joined; UNKNOWN: the kind
--         of the key is unknown, and the tier, which has it, was unreachable; nothing was changed
-- FAILS   FULL, DAMAGED: another client has written to a state, or to `kept`
local FIXED_KEYS, MOST_FIELDS = 3, 4000
local known_epoch = table.remove(ARGV)
local limit, through, modes = tonumber(table.remove(ARGV)), table.remove(ARGV), table.remove(ARGV)
local states = {}
for i = #modes, 1, -1 do states[i] = table.remove(KEYS) end
local kept, outbox = table.remove(KEYS), table.remove(KEYS)

-- Without its clock, or the mark of namespace_join, the namespace is new here, or Redis has lost it. While a hub
-- restores it, data here may be older than in the tier, and the kinds of keys are unknown. So the caller joins first.
-- The clock alone is not enough: messages and locks create it again.
local mark, epoch = string.match(redis.call('HGET', kept, '$joined') or '', '^(%a+) %d+ ?(%d*)')
if not last or (mark ~= 'joined' and mark ~= 'provisional') then return 'LOST' end

-- The text of a key's state; two keys of one step may be the same.
local texts = {}
local function text_of_state(i)
  texts[states[i]] = texts[states[i]] or redis.call('GET', states[i]) or ''
  return texts[states[i]]
end

-- Reads all of them at once. One that is missing is read again alone: it may be of another type, which is an error.
local function read_states()
  for first = 1, #states, MOST_FIELDS do
    local last_one = math.min(first + MOST_FIELDS - 1, #states)
    for at, text in ipairs(redis.call('MGET', states[first], unpack(states, first + 1, last_one))) do
      texts[states[first + at - 1]] = text or nil
    end
  end
end

-- Its first word, and its further ones as one text.
local function state_of(i)
  return string.match(text_of_state(i), '^(%a*) ?(.*)$')
end

local COUNTED, waiting = '^%a+ %d+ %d+ %a (%d+)$', {}
local SINGLE = { [''] = true, missing = true, cached = true, expires = true, kept = true, ephemeral = true }
local function is_sound(i)
  local text = text_of_state(i)
  if SINGLE[text] then return true end
  waiting[states[i]] = string.match(text, COUNTED)
  return waiting[states[i]] or string.find(text, '^loading %S+$')
end

-- Redis was flushed and the tier was unreachable since: the kind by argument is known only of keys that were changed
-- since.
local unknown, unknowns = {}, 0
local function is_known(i, held)
  if held or mark == 'joined' then return true end
  local what = state_of(i)
  return what == 'deleted' or what == 'ephemeral'
end

-- The effect of a mode on a key: its present kind, `d` if its state must be deleted, or nothing.
local function kind_of(i)
  local mode = string.sub(modes, i, i)
  if mode == 'D' then return 'd' end
  if mode ~= 'a' and mode ~= 'd' then return string.lower(mode) end
  local held = redis.call('HGET', kept, logical(KEYS[FIXED_KEYS + i]))
  local known = is_known(i, held)
  if mode == 'd' then return (held or not known) and 'd' or nil end
  if not known then unknown[i], unknowns = true, unknowns + 1 end
  return held
end

local LASTING = { s = true, k = true, l = true, d = true }
local kinds, lasts = {}, 0
for i = 1, #modes do
  kinds[i] = kind_of(i)
  if kinds[i] then lasts = lasts + 1 end
end
if lasts > 1 and lasts == #modes then read_states() end
for i = 1, #modes do
  if kinds[i] and not (LASTING[kinds[i]] and is_sound(i)) then
    return redis.error_reply('DAMAGED another client has written to what is known of ' .. logical(KEYS[FIXED_KEYS + i]))
  end
end
-- The ledger was lost with the earlier data, so that a repeat cannot be distinguished from a new call; its first
-- attempt may be in the tier.
if lasts + unknowns > 0 and known_epoch ~= '' and known_epoch ~= epoch then return 'LOST' end
if unknowns == #modes then return 'UNKNOWN' end
local function is_unknown(i)
  return unknown[i]
end

if lasts > 0 and redis.call('XLEN', outbox) >= limit then
  return redis.error_reply('FULL ' .. whole(limit) .. ' changes wait for the durable tier')
end

-- Whether a key may be in the tier alone; `key` is the key that shows its presence, if that is not the key itself.
local present = {}
local function is_cold(i, key)
  if not kinds[i] then return false end
  key = key or KEYS[FIXED_KEYS + i]
  present[i] = redis.call('EXISTS', key) == 1
  if present[i] then return false end
  local what, rest = state_of(i)
  if what == 'missing' or what == 'deleted' then return false end
  if what ~= 'pending' then return true end
  local expires = tonumber(string.match(rest, '^%d+ (%d+)'))
  return expires == 0 or expires * 1000 > microseconds()
end

local function is_kept(i)
  return kinds[i] ~= nil
end

-- A key in another state is not in the tier yet: it was ephemeral, or existed before the tier.
local WITH_TIER = { pending = true, cached = true, expires = true, kept = true }

-- Whether an existing key becomes durable now.
local function begins_to_last(i)
  return kinds[i] and kinds[i] ~= 'd' and not WITH_TIER[state_of(i)]
end

-- Whether a key's expiry is only that of its copy here. For knowledge it is, unless the state says otherwise: a state
-- may be evicted alone, and that must not end a key.
local function is_cached(i)
  local what, rest = state_of(i)
  if what == 'cached' then return true end
  if kinds[i] ~= 'k' or what == 'expires' or what == 'deleted' or what == 'ephemeral' then return false end
  if what == 'pending' then return string.find(rest, '^%d+ 0 ') ~= nil end
  -- The first such call concerns a key that was not durable.
  return string.sub(modes, i, i) ~= 'K' or redis.call('HEXISTS', kept, logical(KEYS[FIXED_KEYS + i])) == 1
end

local outgoing, urgent, leaving = {}, false, {}
local function leave(i, type, version, stamp, floor, size, expires, created, codec, body, element)
  local kind = kinds[i] == 'd' and 's' or kinds[i]
  local name = type .. ' ' .. kind .. ' ' .. version .. ' ' .. stamp .. ' ' .. floor .. ' ' .. size .. ' ' .. expires
    .. ' ' .. created .. ' ' .. codec .. ' ' .. actor .. ' ' .. logical(KEYS[FIXED_KEYS + i])
  if element then name = name .. '\n' .. element end
  outgoing[#outgoing + 1], outgoing[#outgoing + 2] = name, body
  leaving[i] = (leaving[i] or 0) + 1
  if through ~= '' and string.find(through, kind, 1, true) then urgent = true end
end

-- Settling may be out of order: not the newest change shows that the tier has all, but the number of waiting documents.
-- The step writes the new states when it ends, all at once.
local left_at, outdated, is_outdated = {}, {}, {}
local function set_state(i, what, stamp, expires)
  local state = states[i]
  waiting[state] = (waiting[state] or 0) + leaving[i]
  texts[state] = what .. ' ' .. stamp .. ' ' .. expires .. ' ' .. kinds[i] .. ' ' .. waiting[state]
  if not is_outdated[state] then outdated[#outdated + 1], is_outdated[state] = state, true end
  leaving[i], left_at[i] = 0, stamp
end
local function write_states(state, ...)
  redis.call('MSET', state, ...)
end

-- Whether to send a whole list, this time.
local function is_left_whole(i)
  return redis.call('HDEL', kept, '$whole ' .. logical(KEYS[FIXED_KEYS + i])) == 1
end

local function forget(i, type, stamp)
  leave(i, type, stamp, stamp, stamp, '0', '0', stamp, 'gone', '')
  set_state(i, 'deleted', stamp, '0')
  redis.call('HDEL', kept, logical(KEYS[FIXED_KEYS + i]))
end

local function await_tier(i, stamp, expires)
  set_state(i, 'pending', stamp, expires)
  local mode = string.sub(modes, i, i)
  if mode == 'S' or mode == 'K' then redis.call('HSET', kept, logical(KEYS[FIXED_KEYS + i]), kinds[i]) end
end

-- The expiry of a key, in milliseconds since 1970; 0: never. Until the tier has the change, no copy may expire.
local function expiry(i, key, ttl_ms)
  local now_ms = math.floor(microseconds() / 1000)
  if ttl_ms ~= '0' and ttl_ms ~= '-1' then return whole(now_ms + tonumber(ttl_ms)) end
  if is_cached(i) then
    redis.call('PERSIST', key)
    return '0'
  end
  local left = redis.call('PTTL', key)
  return left > 0 and whole(now_ms + left) or '0'
end

-- A value was written; ttl_ms as in value_write.
local function keep_value(i, version, created, codec, body, ttl_ms)
  if not kinds[i] then return end
  if kinds[i] == 'd' then return forget(i, 'value', version) end
  local expires = ttl_ms == '0' and '0' or expiry(i, KEYS[FIXED_KEYS + i], ttl_ms)
  leave(i, 'value', version, version, version, '0', expires, created or version, codec, body)
  await_tier(i, version, expires)
end

-- No caller needs to wait for the entries of this step, whatever their kind.
local function wait_for_none()
  through = ''
end

-- A part of a record with its own documents, such as a plan of a session; without a body it was deleted.
local function keep_document(i, type, element, stamp, body)
  if not kinds[i] then return end
  leave(i, type, stamp, stamp, '0', '0', '0', stamp, body and 'json' or 'gone', body or '', element)
end

-- The same with a version of its own, and in a coding that the outbox knows.
local function keep_coded(i, type, element, version, stamp, codec, body)
  if kinds[i] then leave(i, type, version, stamp, '0', '0', '0', version, codec, body, element) end
end

-- The head of such a record: its number of parts, its own fields, its expiry, if any, and the stamp below which parts
-- count no more, if it has changed.
local function keep_head(i, type, stamp, size, body, expires, floor)
  if not kinds[i] then return end
  expires = expires or '0'
  leave(i, type, stamp, stamp, floor or (present[i] == false and stamp or '0'), size, expires, stamp, 'json', body)
  await_tier(i, stamp, expires)
end

-- Whether some of the namespace's memories and graphs may be only in the tier, so that it is unknown what is new. The
-- mark is set when all are restored, and is lost together with the data.
local function lacks_records()
  return lasts > 0 and redis.call('HEXISTS', kept, '$gathered') == 0
end

-- Such a record was deleted, with all its parts.
local function keep_gone(i, type, stamp)
  if kinds[i] then forget(i, type, stamp) end
end

-- An element of a structure was changed (`body`) or deleted (no body); the script reports that before it ends.
local elements = {}
local function keep_element(i, type, element, body)
  if not kinds[i] then return end
  elements[i] = elements[i] or { type = type }
  table.insert(elements[i], { element, body })
end

-- The content of a string: type, version, time of creation, codec and body.
local function string_at(key)
  local text = redis.call('GET', key)
  local version, created, codec, body_at = header_of(text)
  if version then return 'value', version, created, codec, string.sub(text, body_at) end
  if string.find(text, '^-?%d+$') then return 'counter', nil, '0', 'json', text end
  return 'text', nil, '0', 'text', text
end

local SIZES = { list = 'LLEN', hash = 'HLEN', set = 'SCARD' }
local function type_at(key)
  local type = redis.call('TYPE', key)
  return type.ok or type
end

-- The elements of a structure as documents; the items of a list get new names, in their order.
local function all_of(type, key, stamp)
  local found = {}
  if type == 'list' then
    local items = redis.call('LRANGE', key, '0', '-1')
    for at, item in ipairs(items) do found[at] = { whole(tonumber(stamp) - #items + at), item } end
  elseif type == 'hash' then
    local fields = redis.call('HGETALL', key)
    for at = 1, #fields, 2 do found[#found + 1] = { fields[at], fields[at + 1] } end
  else
    for at, member in ipairs(redis.call('SMEMBERS', key)) do found[at] = { member, '' } end
  end
  return found
end

keep_change = function(i, stamp, ttl_ms)
  if not kinds[i] then return end
  local key, changes_of = KEYS[FIXED_KEYS + i], elements[i] or {}
  local type, known = type_at(key), WITH_TIER[state_of(i)]
  if type == 'none' or kinds[i] == 'd' then return forget(i, changes_of.type or 'value', stamp) end
  local expires = expiry(i, key, ttl_ms)
  if type == 'string' then
    local what, version, created, codec, body = string_at(key)
    leave(i, what, version or stamp, stamp, version or stamp, '0', expires, created, codec, body)
  else
    local is_new = present[i] == false
    if type == 'list' and is_left_whole(i) then known = nil end
    local floor = (is_new or not known) and stamp or '0'
    for _, one in ipairs((is_new or known) and changes_of or all_of(type, key, stamp)) do
      leave(i, type, stamp, stamp, '0', '0', '0', stamp, one[2] and 'member' or 'gone', one[2] or '', one[1] or stamp)
    end
    leave(i, type, stamp, stamp, floor, whole(redis.call(SIZES[type], key)), expires, stamp, 'json', '')
  end
  await_tier(i, stamp, expires)
end

-- One entry for all documents of the step; more only if Lua cannot pass so many at once. The reply is
-- `@<their ids>[!<stamp of each key, 0 if it is unchanged>] <the script's own>`, with `!` if the caller waits for them.
hand_over = function(reply)
  local ids = {}
  for first = 1, #outgoing, MOST_FIELDS do
    local last_one = math.min(first + MOST_FIELDS - 1, #outgoing)
    ids[#ids + 1] = redis.call('XADD', outbox, '*', unpack(outgoing, first, last_one))
  end
  for first = 1, #outdated, MOST_FIELDS / 2 do
    local new = {}
    for at = first, math.min(first + MOST_FIELDS / 2 - 1, #outdated) do
      new[#new + 1], new[#new + 2] = outdated[at], texts[outdated[at]]
    end
    write_states(unpack(new))
  end
  if not urgent then return '@' .. table.concat(ids, ',') .. ' ' .. reply end
  for i = 1, #modes do left_at[i] = left_at[i] or '0' end
  return '@' .. table.concat(ids, ',') .. '!' .. table.concat(left_at, ',') .. ' ' .. reply
end
