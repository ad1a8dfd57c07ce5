-- graph_mend: repair index entries of a knowledge graph group that do not follow from its records.
--
-- INCLUDE time ledger mutation graph
-- KEYS keys...   hash  the record of each; then groups, edges, claims, names, merges, changed and told (see
--                      include/graph.lua)
-- ARGV group     text  as used in keys
-- ARGV words...  any   for each record: its present version (0: it does not exist), then blocks with the number of
--                      words before them: edge members to remove, those to add with a 0 before each, the same of
--                      claims, and of told; fields of names to remove, those to add with the value of each, the same of
--                      merges; lines that count as changed
--
-- RETURNS the number of repaired records; the others have changed since
-- FAILS   CLOSED, STALE, WRONGTYPE
local SHARED, BLOCKS = 7, 11
local group = ARGV[6]
local count, own = #KEYS - 3 - SHARED, #KEYS - SHARED
local groups, edges, claims, names = KEYS[own + 1], KEYS[own + 2], KEYS[own + 3], KEYS[own + 4]
local merges, changed, told = KEYS[own + 5], KEYS[own + 6], KEYS[own + 7]

local at = 7
local function read_block()
  local first = at + 1
  at = first + tonumber(ARGV[at])
  return { first = first, last = at - 1 }
end

local function read_wrong()
  local wrong = { version = ARGV[at], blocks = {} }
  at = at + 1
  for b = 1, BLOCKS do wrong.blocks[b] = read_block() end
  return wrong
end

local function replace(key, gone_ones, new_ones)
  in_parts(gone_ones.first, gone_ones.last, function(from, to) redis.call('ZREM', key, unpack(ARGV, from, to)) end)
  in_parts(new_ones.first, new_ones.last, function(from, to) redis.call('ZADD', key, unpack(ARGV, from, to)) end)
end

local function forget(key, gone_ones)
  in_parts(gone_ones.first, gone_ones.last, function(from, to) redis.call('HDEL', key, unpack(ARGV, from, to)) end)
end

local beside = {}
for i = 1, count do beside[i] = read_wrong() end
local born = state_of_group(groups, group)
if not born then return done('0') end

local stamp, mended = whole(tick(1)), 0
local function mend(record, wrong)
  local blocks = wrong.blocks
  if (redis.call('HGET', record, 'version') or '0') ~= wrong.version then return end
  replace(edges, blocks[1], blocks[2])
  replace(claims, blocks[3], blocks[4])
  replace(told, blocks[5], blocks[6])
  forget(names, blocks[7])
  -- A name belongs to the first entity that has used it.
  for i = blocks[8].first, blocks[8].last, 2 do redis.call('HSETNX', names, ARGV[i], ARGV[i + 1]) end
  forget(merges, blocks[9])
  for i = blocks[10].first, blocks[10].last, 2 do redis.call('HSET', merges, ARGV[i], ARGV[i + 1]) end
  for i = blocks[11].first, blocks[11].last do redis.call('ZADD', changed, stamp, ARGV[i]) end
  mended = mended + 1
end

for i, wrong in ipairs(beside) do mend(KEYS[3 + i], wrong) end
redis.call('ZADD', changed, stamp, '')
return done(whole(mended))
