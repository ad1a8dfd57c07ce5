-- note_restore: restore several notes of an app from the durable tier, unless they are here as new or newer.
--
-- INCLUDE time note
-- KEYS kept      hash  lease of the restore (see records_gather)
-- KEYS keys...   any   the record of each; then log, place, apps, ids, users and chains (see include/note.lua)
-- ARGV app       text  as used in keys
-- ARGV token     text  of the restoring hub
-- ARGV lease_ms  int   length of its lease from now on
-- ARGV words...  any   for each: version, user, chain, number of words of its fields, and these (none: it was erased)
--
-- RETURNS `restored <number of restored records>`; `overtaken` if another hub restores them
local SHARED, FIRST = 6, 4
local kept, app, token, lease_ms = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local count, own = #KEYS - 1 - SHARED, #KEYS - SHARED
local log, place, apps = KEYS[own + 1], KEYS[own + 2], KEYS[own + 3]
local ids, users, chains = KEYS[own + 4], KEYS[own + 5], KEYS[own + 6]
local now = math.floor(microseconds() / 1000)

local holder = string.match(redis.call('HGET', kept, '$gathering') or '', '^%S+')
if holder ~= token then return 'overtaken' end
redis.call('HSET', kept, '$gathering', token .. ' ' .. whole(now + lease_ms))
local pool = redis.call('EXISTS', place) == 0

local NAMES = { 'version', 'user', 'chain', 'words' }
local at = FIRST
local function read_note()
  local one = { first = at + #NAMES }
  for i, name in ipairs(NAMES) do one[name] = ARGV[at + i - 1] end
  one.last = one.first + tonumber(one.words) - 1
  at = one.last + 1
  return one
end

-- On a server with an old snapshot, an older state may still exist.
local function forget(record, held, named, id)
  redis.call('DEL', record)
  redis.call('ZREM', log, named)
  redis.call('ZREM', ids, id)
  shift(users, held[2], -1)
  shift(chains, held[3], -1)
end

local function restore(record, one)
  local named, id = named_by(record)
  local held = redis.call('HMGET', record, 'version', 'user', 'chain')
  if held[1] and tonumber(held[1]) >= tonumber(one.version) then return 0 end
  if held[1] then forget(record, held, named, id) end
  if one.last < one.first then return 0 end
  redis.call('HSET', record, 'version', one.version, unpack(ARGV, one.first, one.last))
  if pool then redis.call('HSET', record, 'pool', '1') end
  redis.call('ZADD', log, one.version, named)
  redis.call('ZADD', ids, 0, id)
  redis.call('SADD', apps, app)
  shift(users, one.user, 1, tonumber(one.version))
  shift(chains, one.chain, 1)
  return 1
end

local restored = 0
for i = 1, count do restored = restored + restore(KEYS[1 + i], read_note()) end
if redis.call('EXISTS', ids) == 0 then redis.call('SREM', apps, app) end
return 'restored ' .. whole(restored)
