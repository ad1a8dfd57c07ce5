-- graph_commit: write all that a step changes in a group of a knowledge graph, or nothing.
--
-- INCLUDE time ledger mutation packing header keeping graph
-- KEYS keys...   any   the record of each row; then log, place, groups, edges, claims, names, merges, changed and told
--                      (see include/graph.lua)
-- ARGV group     text  as used in keys
-- ARGV seen      int   the newest change of the group that the caller has read
-- ARGV words...  any   for each row: its present version (0: it is new; -1: any) or its body (`{}`: no body), base64 of
--                      its vector for the durable tier, number of words of its fields, and these, its body first
--                      (without fields it is deleted if it exists); then blocks with the number of words before them:
--                      guards, steady guards, edge members to remove, those to add with a 0 before each, the same of
--                      claims, and of told; entities that are no longer merged, merged ones with their target; names
--                      with the id of each or empty; ids with the JSON of their merges; announcements with the key of
--                      each; prefixes of members of told
--
-- RETURNS the version, and the number of members with each of these prefixes. `BEHIND`: something that was read has
--         changed or is void, nothing was written. `UNFINISHED`: the group is to be deleted, and its deletion has
--         stopped. COLD when some of it may be in the durable tier alone
-- FAILS   CLOSED, STALE, WRONGTYPE, GROUPCLOSED, DAMAGED: a record is newer than the clock
local SHARED, MOST_GUARDS, SPARE_GUARDS = 9, 4096, 512
local group, seen = ARGV[6], tonumber(ARGV[7])
local count = #KEYS - 3 - SHARED
local own = #KEYS - SHARED
local log, place, groups = KEYS[own + 1], KEYS[own + 2], KEYS[own + 3]
local edges, claims, names = KEYS[own + 4], KEYS[own + 5], KEYS[own + 6]
local merges, changed, told = KEYS[own + 7], KEYS[own + 8], KEYS[own + 9]

local at = 8
local function read_row(i)
  local first = at + 3
  local row = { id = string.match(KEYS[3 + i], '}:(.*)$'), expect = ARGV[at], vector = ARGV[at + 1], first = first }
  row.last = first + tonumber(ARGV[at + 2]) - 1
  at = row.last + 1
  return row
end

local function read_block()
  local first = at + 1
  at = first + tonumber(ARGV[at])
  return { first = first, last = at - 1 }
end

local function has_changed(guards)
  for i = guards.first, guards.last do
    local stamp = redis.call('ZSCORE', changed, ARGV[i])
    if stamp and tonumber(stamp) > seen then return true end
  end
  return false
end

-- Guards that were left out because there are too many are not newer than the others.
local function guards_have_changed(guards, steady)
  local newest = redis.call('ZSCORE', changed, '')
  if not newest or tonumber(newest) <= seen then return false end
  local oldest = redis.call('ZRANGE', changed, 0, 0, 'WITHSCORES')
  if redis.call('ZCARD', changed) >= MOST_GUARDS and tonumber(oldest[2]) > seen then return true end
  return has_changed(guards) or has_changed(steady)
end

local function is_body(expect) return string.sub(expect, 1, 1) == '{' end

local function rows_have_changed(rows)
  for i, row in ipairs(rows) do
    local held = redis.call('HGET', KEYS[3 + i], 'version') or '0'
    -- A fact that was written after the caller's read is newer than its own change.
    if is_body(row.expect) and tonumber(held) > seen then return true end
    if row.expect ~= '-1' and not is_body(row.expect) and held ~= row.expect then return true end
    row.is_there = held ~= '0'
  end
  return false
end

-- The expected version of a row implies which of its index members are removed.
local function rows_are_other(rows)
  for i, row in ipairs(rows) do
    if is_body(row.expect) and (redis.call('HGET', KEYS[3 + i], 'body') or '{}') ~= row.expect then return true end
  end
  return false
end

local rows = {}
for i = 1, count do rows[i] = read_row(i) end
local guards, steady = read_block(), read_block()

if lacks_records() then return 'COLD' end
local born, closed_until, _, gone = state_of_group(groups, group)
if closed_until and closed_until > microseconds() then
  return redis.error_reply('GROUPCLOSED the group is being deleted')
end
if closed_until then return 'UNFINISHED' end
-- A group has its beginning and its guards, or neither; the one without a name is the newest of these, and not older
-- than the beginning or a record. Where another client has written there, each step would be too late for ever: the
-- group begins anew, so that only what was seen before is void.
local newest_record = 0
for i = 1, count do
  newest_record = math.max(newest_record, tonumber(redis.call('HGET', KEYS[3 + i], 'version') or '0'))
end
local begun = born and tonumber(string.match(born, '^%d+$'))
local function is_sound()
  local newest = tonumber(redis.call('ZSCORE', changed, '') or '')
  local highest = tonumber(redis.call('ZREVRANGE', changed, '0', '0', 'WITHSCORES')[2] or '')
  if not born then return not highest end
  return begun and newest and newest == highest and math.max(begun, newest_record) <= newest
end
if not is_sound() then
  local anew = whole(tick(1))
  if newest_record > tonumber(anew) then return redis.error_reply('DAMAGED a version was never given') end
  redis.call('HSET', groups, group, anew)
  redis.call('ZREMRANGEBYSCORE', changed, '(' .. anew, '+inf')
  redis.call('ZADD', changed, anew, '')
  return 'BEHIND'
end
-- Data read before the group began, or of a group that was deleted in between, is void.
if begun and seen < begun or not begun and seen ~= tonumber(gone) then return 'BEHIND' end
if guards_have_changed(guards, steady) or rows_have_changed(rows) then return 'BEHIND' end
if rows_are_other(rows) then return 'OTHER' end

local edges_gone, edges_new, claims_gone, claims_new = read_block(), read_block(), read_block(), read_block()
local told_gone, told_new, unmerged, merged = read_block(), read_block(), read_block(), read_block()
local named, merges_new, spoken, counted = read_block(), read_block(), read_block(), read_block()

local versions = math.max(1, (spoken.last - spoken.first + 1) / 2)
local version = tick(versions)
local stamp = whole(version + versions - 1)

local function document(row)
  local vector = row.vector ~= '' and ',"embedding":"' .. row.vector .. '"' or ''
  return '{"version":' .. stamp .. vector .. ',' .. string.sub(ARGV[row.first + 1], 2)
end

local pool = redis.call('EXISTS', place) == 0 and '1' or nil
local logged, unlogged = {}, {}
local function store(record, row, i)
  local type = type_of(row.id)
  local is_searched = type ~= 'name'
  if is_searched then logged[#logged + 1], logged[#logged + 2] = stamp, row.id end
  if pool and is_searched then
    redis.call('HSET', record, 'version', stamp, 'pool', pool, unpack(ARGV, row.first, row.last))
  else
    redis.call('HSET', record, 'version', stamp, unpack(ARGV, row.first, row.last))
  end
  if is_kept(i) then keep_head(i, type, stamp, '0', document(row)) end
end

local function drop(record, row, i)
  if not row.is_there then return end
  redis.call('DEL', record)
  unlogged[#unlogged + 1] = row.id
  keep_gone(i, type_of(row.id), stamp)
end

local function replace(key, gone_ones, new_ones)
  in_parts(gone_ones.first, gone_ones.last, function(from, to) redis.call('ZREM', key, unpack(ARGV, from, to)) end)
  in_parts(new_ones.first, new_ones.last, function(from, to) redis.call('ZADD', key, unpack(ARGV, from, to)) end)
end

local function put(key, pairs_of)
  in_parts(pairs_of.first, pairs_of.last, function(from, to) redis.call('HSET', key, unpack(ARGV, from, to)) end)
end

local function set_name(name, id)
  local before = redis.call('HGET', names, OF_NAME .. name)
  if before == id then return end
  if before then redis.call('ZREM', told, BY_OWNER .. before .. BETWEEN .. name) end
  if id == '' then
    redis.call('HDEL', names, OF_NAME .. name)
  else
    redis.call('HSET', names, OF_NAME .. name, id)
    redis.call('ZADD', told, 0, BY_OWNER .. id .. BETWEEN .. name)
  end
end

local function note_changed()
  local scored = {}
  for i = guards.first, guards.last do scored[#scored + 1], scored[#scored + 2] = stamp, ARGV[i] end
  in_parts(1, #scored, function(from, to) redis.call('ZADD', changed, unpack(scored, from, to)) end)
  if redis.call('ZCARD', changed) > MOST_GUARDS + SPARE_GUARDS then
    redis.call('ZREMRANGEBYRANK', changed, 0, -MOST_GUARDS - 1)
  end
  -- Last, since among all present changes it is the first to be left out.
  redis.call('ZADD', changed, stamp, '')
end

if not born then redis.call('HSET', groups, group, stamp) end
for i, row in ipairs(rows) do
  if row.last < row.first then drop(KEYS[3 + i], row, i) else store(KEYS[3 + i], row, i) end
end
in_parts(1, #logged, function(from, to) redis.call('ZADD', log, unpack(logged, from, to)) end)
in_parts(1, #unlogged, function(from, to) redis.call('ZREM', log, unpack(unlogged, from, to)) end)
replace(edges, edges_gone, edges_new)
replace(claims, claims_gone, claims_new)
replace(told, told_gone, told_new)
in_parts(unmerged.first, unmerged.last, function(from, to) redis.call('HDEL', names, unpack(ARGV, from, to)) end)
put(names, merged)
for i = named.first, named.last, 2 do set_name(ARGV[i], ARGV[i + 1]) end
put(merges, merges_new)
note_changed()
if versions > 1 then packet = {} end
for i = spoken.first, spoken.last, 2 do
  announce(whole(version + (i - spoken.first) / 2), ARGV[i], ARGV[i + 1])
end
-- The tier may have no version that the stream never had (see kept.lua).
for i = 1, spoken.last < spoken.first and math.min(count, 1) or 0 do announce(stamp, 'graph.changed', KEYS[3 + i]) end
local reply = { stamp }
for i = counted.first, counted.last do
  reply[#reply + 1] = whole(redis.call('ZLEXCOUNT', told, '[' .. ARGV[i], '(' .. ARGV[i] .. ':'))
end
return done(table.concat(reply, ' '))
