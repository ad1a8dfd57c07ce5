-- note_commit: write new notes of an app and changes of others, all or nothing.
--
-- INCLUDE time ledger mutation packing header keeping note
-- KEYS keys...   any   the record of each note; then log, place, apps, ids, users and chains (see include/note.lua)
-- ARGV app       text  as used in keys
-- ARGV reader    text  user whose notes were searched; empty if nothing depends on it
-- ARGV seen      int   the newest change that this search has surely read
-- ARGV words...  any   number of chains with fencing tokens, and these in turn; then for each note: its version (0: it
--                      is new), task that makes it or empty, user, status, chain, event for the change feed, base64 of
--                      its vector for the durable tier, `1` if its vector is deleted, number of words of its fields,
--                      and these, its body first
--
-- RETURNS `ok <version>` of the first note, the others have the next ones; `repeat` if a note of the same task exists;
--         `behind <place>...` if these notes have another version, or (after the notes) these chains a higher token;
--         alone: the user has newer notes. In the last three cases nothing was done. COLD when some of it may be in
--         the durable tier alone
-- FAILS   CLOSED, STALE, WRONGTYPE
local SHARED, FIRST = 6, 10
local app, reader, seen = ARGV[6], ARGV[7], tonumber(ARGV[8])
local count, own = #KEYS - 3 - SHARED, #KEYS - SHARED
local log, place, apps = KEYS[own + 1], KEYS[own + 2], KEYS[own + 3]
local ids, users, chains = KEYS[own + 4], KEYS[own + 5], KEYS[own + 6]
if lacks_records() then return 'COLD' end

local fences = {}
for i = 1, tonumber(ARGV[FIRST - 1]) do
  fences[i] = { chain = ARGV[FIRST + 2 * i - 2], token = tonumber(ARGV[FIRST + 2 * i - 1]) }
end

local NAMES = { 'expect', 'task', 'user', 'status', 'chain', 'event', 'vector', 'drops', 'words' }
local at = FIRST + 2 * #fences
local function read_note()
  local one = { first = at + #NAMES }
  for i, name in ipairs(NAMES) do one[name] = ARGV[at + i - 1] end
  one.last = one.first + tonumber(one.words) - 1
  at = one.last + 1
  return one
end

local notes, behind = {}, {}
for i = 1, count do
  local one = read_note()
  local held = redis.call('HMGET', KEYS[3 + i], 'version', 'task', 'status', 'chain')
  local version = held[1] or '0'
  if one.expect == '0' and version ~= '0' and one.task ~= '' and held[2] == one.task then return 'repeat' end
  if version ~= one.expect then behind[#behind + 1] = i end
  one.was, one.chained = held[3], held[4]
  notes[i] = one
end
for i, fence in ipairs(fences) do
  if newest_of(chains, fence.chain) > fence.token then behind[#behind + 1] = count + i end
end
if #behind > 0 then return 'behind ' .. table.concat(behind, ' ') end
if reader ~= '' and newest_of(users, reader) > seen then return 'behind' end

local version = tick(count)
if count > 1 then packet = {} end
local pool = redis.call('EXISTS', place) == 0

local function store(record, one, stamp)
  if one.drops == '1' then redis.call('HDEL', record, 'vector') end
  if pool then
    redis.call('HSET', record, 'version', stamp, 'pool', '1', unpack(ARGV, one.first, one.last))
  else
    redis.call('HSET', record, 'version', stamp, unpack(ARGV, one.first, one.last))
  end
end

-- Earlier searches have not seen this note, if it is or was searchable.
local function follow(id, one, stamp)
  local is_new = one.expect == '0'
  if is_new then redis.call('ZADD', ids, 0, id) end
  local newest = (SEARCHED[one.status] or SEARCHED[one.was]) and stamp or 0
  shift(users, one.user, is_new and 1 or 0, newest)
  if not is_new and one.chained == one.chain then return end
  shift(chains, one.chain, 1)
  if not is_new then shift(chains, one.chained, -1) end
end

local function document(one, stamp)
  local vector = one.vector ~= '' and ',"embedding":"' .. one.vector .. '"' or ''
  return '{"version":' .. stamp .. vector .. ',' .. string.sub(ARGV[one.first + 1], 2)
end

redis.call('SADD', apps, app)
for i, one in ipairs(notes) do
  local record, stamp = KEYS[3 + i], whole(version + i - 1)
  local named, id = named_by(record)
  store(record, one, stamp)
  redis.call('ZADD', log, stamp, named)
  follow(id, one, version + i - 1)
  if is_kept(i) then keep_head(i, 'note', stamp, '0', document(one, stamp)) end
  announce(stamp, one.event, record)
end
for _, fence in ipairs(fences) do shift(chains, fence.chain, 0, fence.token) end
return done('ok ' .. whole(version))
