-- outbox_settle: delete entries that the durable tier has, and update the states of their keys.
--
-- Rejected documents become dead letters, and their keys stay as they are here until that is settled.
--
-- INCLUDE time
-- KEYS outbox   stream  the outbox, or the dead letters themselves
-- KEYS dead     stream  dead letters: `name` and `body` of the field, `reason`
-- KEYS keys...  any     pairs: a key, or the key that shows its presence, and its state
-- ARGV group       text  consumer group that may have claimed the entries
-- ARGV cache_ms    int   lifetime of a copy of a durable key here
-- ARGV absent_ms   int   how long the absence of a deleted key is stored
-- ARGV entries     text  a line an entry: `<id> <number of a pair>=<documents of that key that the tier has> ...`
-- ARGV refused...  text  triples: id of an entry, index of its field (from 1), reason
--
-- RETURNS the number of entries that existed
local outbox, dead, group, cache_ms, absent_ms = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]

local refused = {}
for i = 5, #ARGV, 3 do
  refused[ARGV[i]] = refused[ARGV[i]] or {}
  table.insert(refused[ARGV[i]], { tonumber(ARGV[i + 1]) * 2, ARGV[i + 2] })
end

local function bury(id)
  local entry = redis.call('XRANGE', outbox, id, id)[1]
  for _, one in ipairs(entry and refused[id] or {}) do
    local at, reason = one[1], one[2]
    redis.call('XADD', dead, '*', 'name', entry[2][at - 1], 'body', entry[2][at], 'reason', reason)
  end
end

local function move_on(pair, documents)
  local key, state = KEYS[pair * 2 + 1], KEYS[pair * 2 + 2]
  local words = '^(%a+) (%d+) (%d+) (%a) (%d+)$'
  local held = redis.pcall('GET', state)
  -- Another type or format: another client has written there, and the tier has the data.
  local what, stamp, expires, kind, waiting = string.match(type(held) == 'string' and held or '', words)
  if not what then return end
  local left = tonumber(waiting) - documents
  local is_here = redis.call('EXISTS', key) == 1
  if left > 0 then
    redis.call('SET', state, table.concat({ what, stamp, expires, kind, string.format('%.0f', left) }, ' '))
  elseif not is_here and (what == 'deleted' or expires ~= '0' and tonumber(expires) * 1000 <= microseconds()) then
    redis.call('SET', state, 'missing', 'PX', absent_ms)
  elseif what == 'deleted' and redis.call('PTTL', key) > 0 then
    -- Unlike the rule, by which this would be the expiry of a copy.
    redis.call('SET', state, 'ephemeral', 'PX', redis.call('PTTL', key))
  elseif kind == 'k' and expires == '0' and is_here then
    redis.call('PEXPIRE', key, cache_ms)
    redis.call('SET', state, 'cached', 'PX', cache_ms)
  elseif kind == 'k' and is_here then
    redis.call('SET', state, 'expires')
    redis.call('PEXPIREAT', state, expires)
  elseif kind == 's' and is_here then
    redis.call('SET', state, 'kept')
    if expires ~= '0' then redis.call('PEXPIREAT', state, expires) end
  else
    redis.call('DEL', state)
  end
end

-- A missing entry was settled by another worker, which has counted its documents.
local gone, had = 0, {}
for line in string.gmatch(ARGV[4], '[^\n]+') do
  local id = string.match(line, '^%S+')
  if refused[id] then bury(id) end
  redis.pcall('XACK', outbox, group, id)
  if redis.call('XDEL', outbox, id) == 1 then
    gone = gone + 1
    for pair, documents in string.gmatch(line, ' (%d+)=(%d+)') do
      had[tonumber(pair)] = (had[tonumber(pair)] or 0) + tonumber(documents)
    end
  end
end
for pair = 1, (#KEYS - 2) / 2 do
  if had[pair] then move_on(pair, had[pair]) end
end
return gone
