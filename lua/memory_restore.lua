-- memory_restore: restore several memories from the durable tier, unless they are here as new or newer.
--
-- INCLUDE time
-- KEYS kept      hash    lease of the restore (see records_gather)
-- KEYS log       zset    ids by the version of their last change
-- KEYS digests   hash    id by digest
-- KEYS endings   zset    what expires (see include/memory.lua)
-- KEYS authors   hash    turns by author
-- KEYS pending   zset    ids that wait for their vectors
-- KEYS place     string  name of the namespace's own index
-- KEYS keys...   any     the record of each, then the turns of the thread of each
-- ARGV token       text  of the restoring hub
-- ARGV lease_ms    int   length of its lease from now on
-- ARGV restores... any   for each: id, version, turn index, digest, thread, author or empty, facts, `1` if it waits
--                        for its vector, milliseconds since 1970 of its expiry (0: never), number of fields of its
--                        hash, and these with their values; without fields: it was deleted
--
-- RETURNS `restored <number of restored records>`; `overtaken` if another hub restores them
local FIXED = 7
local NAMES = { 'id', 'version', 'turn', 'digest', 'thread', 'author', 'facts', 'waits', 'expires', 'fields' }
local kept, log, digests, endings, authors = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local pending, place, token, lease_ms = KEYS[6], KEYS[7], ARGV[1], tonumber(ARGV[2])
local count = (#KEYS - FIXED) / 2
local now = math.floor(microseconds() / 1000)

local holder = string.match(redis.call('HGET', kept, '$gathering') or '', '^%S+')
if holder ~= token then return 'overtaken' end
redis.call('HSET', kept, '$gathering', token .. ' ' .. whole(now + lease_ms))
local pool = redis.call('EXISTS', place) == 0

local function terms_at(from)
  local one = { from = from + #NAMES }
  for i, name in ipairs(NAMES) do one[name] = ARGV[from + i - 1] end
  one.expires, one.fields = tonumber(one.expires), tonumber(one.fields)
  return one, one.from + 2 * one.fields
end

local function log_change(one)
  local known = redis.call('ZSCORE', log, one.id)
  if not known or tonumber(known) < tonumber(one.version) then redis.call('ZADD', log, one.version, one.id) end
end

-- On a server with an old snapshot, an older state may still exist.
local function forget_turn(turns, one)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', turns, one.turn, one.turn)) do
    if string.sub(member, 1, #one.id + 1) == one.id .. ' ' then redis.call('ZREM', turns, member) end
  end
end

local function store(record, turns, one)
  redis.call('DEL', record)
  local fields = {}
  for i = one.from, one.from + 2 * one.fields - 1 do fields[#fields + 1] = ARGV[i] end
  if pool then fields[#fields + 1], fields[#fields + 2] = 'pool', '1' end
  redis.call('HSET', record, unpack(fields))
  forget_turn(turns, one)
  redis.call('ZADD', turns, one.turn, one.id .. ' ' .. (one.author == '' and 'null' or one.facts))
  redis.call('HSET', digests, one.digest, one.id)
  if one.waits == '1' then redis.call('ZADD', pending, 'NX', '0', one.id) end
  if one.expires > 0 then
    redis.call('PEXPIREAT', record, whole(one.expires))
    local ending = one.id .. ' ' .. one.digest .. ' ' .. one.turn .. ' ' .. one.thread
    redis.call('ZADD', endings, whole(one.expires), ending)
  end
end

local function restore(record, turns, one)
  local held = redis.call('HGET', record, 'version')
  local is_newer = held and tonumber(held) >= tonumber(one.version)
  if one.fields == 0 then
    if held and not is_newer then redis.call('DEL', record) end
    return 0
  end
  if one.expires > 0 and one.expires <= now then return 0 end
  if one.author ~= '' then redis.call('HINCRBY', authors, one.author, 1) end
  if is_newer then return 0 end
  store(record, turns, one)
  log_change(one)
  return 1
end

local restored, from = 0, 3
for i = 1, count do
  local one, after = terms_at(from)
  restored = restored + restore(KEYS[FIXED + i], KEYS[FIXED + count + i], one)
  from = after
end
return 'restored ' .. whole(restored)
