-- graph_look: read names, lines and records of a group atomically.
--
-- INCLUDE time graph
-- KEYS groups      hash  see include/graph.lua
-- KEYS changed     zset  guards by the version of their last change; the one without a name: any change
-- KEYS names       hash  ids by name
-- KEYS claims      zset  claims by line
-- KEYS told        zset  register of the group
-- KEYS records...  hash  the requested records
-- ARGV names_count int   number of requested names
-- ARGV lines_count int   number of requested lines
-- ARGV has_vector  int   1: return vectors too
-- ARGV asked...    text  names, lines, and ids of entities whose merge targets are requested
--
-- RETURNS {version, {id and id after merges of each name, empty for an unknown one}, {claims of each line}, {ids of
--         merged entities, each followed by its final target}, {body, version and vector of each record}}
local groups, changed, names, claims, told = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local names_count, lines_count, has_vector = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
local FIRST, FIRST_RECORD = 4, 6
local has_merges = #redis.call('ZRANGEBYLEX', told, '[o', '(p', 'LIMIT', '0', '1') > 0

local ends, merged = {}, {}
local function end_of(id)
  if not has_merges or id == '' then return id end
  if not ends[id] then
    ends[id] = end_of_merges(names, id)
    if ends[id] ~= id then merged[#merged + 1], merged[#merged + 2] = id, ends[id] end
  end
  return ends[id]
end

local function owners()
  local found, fields = {}, {}
  for i = 1, names_count do fields[i] = OF_NAME .. ARGV[FIRST + i - 1] end
  in_parts(1, names_count, function(from, to)
    for _, id in ipairs(redis.call('HMGET', names, unpack(fields, from, to))) do
      found[#found + 1], found[#found + 2] = id or '', id and end_of(id) or ''
    end
  end)
  return found
end

local function claims_of(line)
  local found = redis.call('ZRANGEBYLEX', claims, '[l' .. line .. BETWEEN, '(l' .. line .. ' ')
  if not has_merges then return found end
  for _, claim in ipairs(found) do
    local source, target = string.match(claim, BETWEEN .. '([^' .. BETWEEN .. ']*)' .. BETWEEN .. '([^' .. BETWEEN .. ']*)')
    end_of(source)
    end_of(target)
  end
  return found
end

local function record_at(i)
  local found = has_vector and redis.call('HMGET', KEYS[i], 'body', 'version', 'vector')
    or redis.call('HMGET', KEYS[i], 'body', 'version')
  for part = 1, #found do found[part] = found[part] or '' end
  found[3] = found[3] or ''
  return found
end

local gone = last_gone(redis.call('HGET', groups, ''))
local version = whole(tonumber(redis.call('ZSCORE', changed, '') or gone))
local names_found, lines_found, records_found = owners(), {}, {}
for i = 1, lines_count do lines_found[i] = claims_of(ARGV[FIRST + names_count + i - 1]) end
for i = FIRST + names_count + lines_count, #ARGV do end_of(ARGV[i]) end
for i = FIRST_RECORD, #KEYS do records_found[i - FIRST_RECORD + 1] = record_at(i) end
return { version, names_found, lines_found, merged, records_found }
