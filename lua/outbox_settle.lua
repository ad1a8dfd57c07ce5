-- outbox_settle: delete entries that the durable tier has, and update the states of their keys.
--
-- Rejected documents become dead letters, and their keys stay as they are here until that is settled. An id only says
-- when an entry was written: after a loss of data, another entry may have it (the same millisecond, or a server whose
-- clock is behind). It is known by its stamp, which is assigned once.
--
-- INCLUDE time
-- KEYS outbox   stream  the outbox, or the dead letters themselves
-- KEYS dead     stream  dead letters: `name` and `body` of the field, `reason`
-- KEYS keys...  any     pairs: a key, or the key that shows its presence, and its state
-- ARGV group       text  consumer group that may have claimed the entries
-- ARGV cache_ms    int   lifetime of a copy of a durable key here
-- ARGV absent_ms   int   how long the absence of a deleted key is stored
-- ARGV entries     text  a line an entry: `<id> <stamp of its first document, or -> <number of a pair>=<documents of
--                        that key that the tier has> ...`
-- ARGV refused...  text  triples: id of an entry, index of its field (from 1), reason
--
-- RETURNS the number of entries that were here; then the number of deleted keys that may have dead letters
local outbox, dead, group, cache_ms, absent_ms = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]

local refused = {}
for i = 5, #ARGV, 3 do
  refused[ARGV[i]] = refused[ARGV[i]] or {}
  table.insert(refused[ARGV[i]], { tonumber(ARGV[i + 1]) * 2, ARGV[i + 2] })
end

-- A dead letter has the name of its document as its first value, an entry of the outbox as its first field.
local NAME_AT = outbox == dead and 2 or 1
local function stamp_of(fields)
  return string.match(fields[NAME_AT] or '', '^%S+ %S+ %S+ (%d+)') or '-'
end

local function bury(id, fields)
  for _, one in ipairs(refused[id] or {}) do
    local at, reason = one[1], one[2]
    redis.call('XADD', dead, '*', 'name', fields[at - 1], 'body', fields[at], 'reason', reason)
  end
end

local letters = redis.pcall('XLEN', dead)
local ended, has_letters = 0, type(letters) == 'number' and letters > 0
local function set_state(state, ...)
  redis.call('SET', state, ...)
end
local function move_on(key, state, held, documents)
  -- Another type or format: another client has written there, and the tier has the data.
  local what, stamp, expires, kind, waiting = string.match(held or '', '^(%a+) (%d+) (%d+) (%a) (%d+)$')
  if not what then return end
  local left = tonumber(waiting) - documents
  if left > 0 then
    if what == 'deleted' and has_letters then ended = ended + 1 end
    set_state(state, what .. ' ' .. stamp .. ' ' .. expires .. ' ' .. kind .. ' ' .. string.format('%.0f', left))
    return
  end
  -- Most often this is all: a key that is missing does not get an expiry.
  if kind == 'k' and expires == '0' and what ~= 'deleted' and redis.call('PEXPIRE', key, cache_ms) == 1 then
    set_state(state, 'cached', 'PX', cache_ms)
    return
  end
  local is_here = redis.call('EXISTS', key) == 1
  if not is_here and (what == 'deleted' or expires ~= '0' and tonumber(expires) * 1000 <= microseconds()) then
    set_state(state, 'missing', 'PX', absent_ms)
  elseif what == 'deleted' and redis.call('PTTL', key) > 0 then
    -- Unlike the rule, by which this would be the expiry of a copy.
    set_state(state, 'ephemeral', 'PX', redis.call('PTTL', key))
  elseif kind == 'k' and expires == '0' and is_here then
    redis.call('PEXPIRE', key, cache_ms)
    set_state(state, 'cached', 'PX', cache_ms)
  elseif kind == 'k' and is_here then
    set_state(state, 'expires')
    redis.call('PEXPIREAT', state, expires)
  elseif kind == 's' and is_here then
    set_state(state, 'kept')
    if expires ~= '0' then redis.call('PEXPIREAT', state, expires) end
  else
    redis.call('DEL', state)
  end
end

-- A missing entry was settled by another worker, which has counted its documents.
local ended_ids, gone_ids, is_gone, had = {}, {}, {}, {}
local function settle(id, fields, line)
  bury(id, fields)
  gone_ids[#gone_ids + 1], is_gone[id] = id, true
  for pair, documents in string.gmatch(line, ' (%d+)=(%d+)') do
    had[tonumber(pair)] = (had[tonumber(pair)] or 0) + tonumber(documents)
  end
end

for line in string.gmatch(ARGV[4], '[^\n]+') do
  local id, stamp = string.match(line, '^(%S+) (%S+)')
  local entry = redis.call('XRANGE', outbox, id, id)[1]
  local is_same = entry and stamp_of(entry[2]) == stamp
  -- Another entry under the id stays claimed by its worker.
  if is_same or not entry then ended_ids[#ended_ids + 1] = id end
  -- After a loss of data two callers may have waited for the same id.
  if is_same and not is_gone[id] then settle(id, entry[2], line) end
end
if #ended_ids > 0 then redis.pcall('XACK', outbox, group, unpack(ended_ids)) end
if #gone_ids > 0 then redis.call('XDEL', outbox, unpack(gone_ids)) end
local states = {}
for i = 4, #KEYS, 2 do states[#states + 1] = KEYS[i] end
-- Of another type: no text, as if it was missing.
local held = #states > 0 and redis.call('MGET', states[1], unpack(states, 2)) or {}
for pair = 1, #states do
  if had[pair] then move_on(KEYS[pair * 2 + 1], states[pair], held[pair], had[pair]) end
end
return { #gone_ids, ended }
