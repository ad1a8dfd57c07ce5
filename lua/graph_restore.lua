-- graph_restore: restore several records of a knowledge graph group from the durable tier.
--
-- Their index entries are restored too. The caller has read the present records, and leaves out records that are as new
-- or newer here.
--
-- INCLUDE time ledger mutation graph
-- KEYS kept      hash    lease of the restore (see records_gather)
-- KEYS keys...   any     the record of each; then log, place, groups, edges, claims, names, merges, changed and told
--                        (see include/graph.lua)
-- ARGV group     text  as used in keys
-- ARGV token     text  of the restoring hub
-- ARGV lease_ms  int   length of its lease from now on
-- ARGV words...  any   for each record: its version here (0: absent), its restored version (0: it was deleted), `1` if
--                      it is searchable, number of words of its fields, and these; then blocks with the number of words
--                      before them: edge members to remove, those to add with a 0 before each, the same of claims, and
--                      of told; fields of names to remove, each with its value; merged entities with their target;
--                      names with the id of each; ids with the JSON of
--                      their merges
--
-- RETURNS `restored <number of restored records>`; `changed` if the records here differ from the ones that were read;
--         `overtaken` if another hub restores them
-- FAILS   CLOSED, STALE, WRONGTYPE
local SHARED, FIRST_RECORD = 9, 5
local group, token, lease_ms = ARGV[6], ARGV[7], tonumber(ARGV[8])
local kept, own = KEYS[4], #KEYS - SHARED
local count = own - FIRST_RECORD + 1
local log, place, groups = KEYS[own + 1], KEYS[own + 2], KEYS[own + 3]
local edges, claims, names = KEYS[own + 4], KEYS[own + 5], KEYS[own + 6]
local merges, changed, told = KEYS[own + 7], KEYS[own + 8], KEYS[own + 9]

local at = 9
local function read_record(i)
  local id, first = string.match(KEYS[FIRST_RECORD + i - 1], '}:(.*)$'), at + 4
  local one = { id = id, held = ARGV[at], version = ARGV[at + 1], first = first }
  one.is_searched, one.last = ARGV[at + 2] == '1', first + tonumber(ARGV[at + 3]) - 1
  at = one.last + 1
  return one
end

local function read_block()
  local first = at + 1
  at = first + tonumber(ARGV[at])
  return { first = first, last = at - 1 }
end

local now = math.floor(microseconds() / 1000)
if string.match(redis.call('HGET', kept, '$gathering') or '', '^%S+') ~= token then return 'overtaken' end
redis.call('HSET', kept, '$gathering', token .. ' ' .. whole(now + lease_ms))

local records = {}
for i = 1, count do
  records[i] = read_record(i)
  if (redis.call('HGET', KEYS[FIRST_RECORD + i - 1], 'version') or '0') ~= records[i].held then return 'changed' end
end
local edges_gone, edges_new, claims_gone, claims_new = read_block(), read_block(), read_block(), read_block()
local told_gone, told_new, names_gone, merged = read_block(), read_block(), read_block(), read_block()
local named, merges_new = read_block(), read_block()

local pool = redis.call('EXISTS', place) == 0
local restored = 0
local function restore(record, one)
  redis.call('DEL', record)
  if one.version == '0' then
    redis.call('ZREM', log, one.id)
    return
  end
  redis.call('HSET', record, 'version', one.version, unpack(ARGV, one.first, one.last))
  if one.is_searched then
    if pool then redis.call('HSET', record, 'pool', '1') end
    redis.call('ZADD', log, one.version, one.id)
  end
  restored = restored + 1
end

local function replace(key, gone_ones, new_ones)
  in_parts(gone_ones.first, gone_ones.last, function(from, to) redis.call('ZREM', key, unpack(ARGV, from, to)) end)
  in_parts(new_ones.first, new_ones.last, function(from, to) redis.call('ZADD', key, unpack(ARGV, from, to)) end)
end

local function put(key, pairs_of)
  in_parts(pairs_of.first, pairs_of.last, function(from, to) redis.call('HSET', key, unpack(ARGV, from, to)) end)
end

for i, one in ipairs(records) do restore(KEYS[FIRST_RECORD + i - 1], one) end
replace(told, told_gone, told_new)
-- Of a group that is being deleted, only records in its register: they are deleted next.
local born, closed_until = state_of_group(groups, group)
if closed_until then return done('restored ' .. whole(restored)) end
if redis.call('EXISTS', told) == 0 then
  -- It was deleted since.
  redis.call('UNLINK', edges, claims, names, merges, changed)
  redis.call('HDEL', groups, group)
  if born then redis.call('HSET', groups, '', whole(tick(1))) end
  return done('restored ' .. whole(restored))
end
replace(edges, edges_gone, edges_new)
replace(claims, claims_gone, claims_new)
for i = names_gone.first, names_gone.last, 2 do
  if redis.call('HGET', names, ARGV[i]) == ARGV[i + 1] then redis.call('HDEL', names, ARGV[i]) end
end
put(names, merged)
put(merges, merges_new)
for i = named.first, named.last, 2 do
  redis.call('HSET', names, OF_NAME .. ARGV[i], ARGV[i + 1])
  redis.call('ZADD', told, 0, BY_OWNER .. ARGV[i + 1] .. BETWEEN .. ARGV[i])
end
-- Earlier reads of the group are void: it may have had records that are not restored.
local stamp = whole(tick(1))
redis.call('HSET', groups, group, stamp)
redis.call('ZADD', changed, stamp, '')
return done('restored ' .. whole(restored))
