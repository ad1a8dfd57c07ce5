-- graph_walk: the edges around some entities that hold at a time, breadth first, newest first.
--
-- KEYS edges       zset  edges of the group by entity, see graph/backends/redis_layout.py
-- ARGV world       text  valid time, with leading zeros as all times here
-- ARGV world_back  text  the same, counted from the end of time
-- ARGV known       text  transaction time
-- ARGV past        int   1: past transaction time, so superseded versions count
-- ARGV kinds       text  `r` relations, `a` attributes, `ra` both
-- ARGV types       text  only these types, with U+001F around each; `@`: all attributes; empty: any
-- ARGV depth       int   most steps
-- ARGV fan_out     int   most edges of one entity
-- ARGV limit       int   most edges in all
-- ARGV patience    int   most edges of one entity to read
-- ARGV starts...   text  ids of entities
--
-- RETURNS {1 if edges were left out, then distance of the far end and member of each edge}
local edges = KEYS[1]
local world, world_back, known, is_past, kinds = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5]
local types, depth, fan_out = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local limit, patience = tonumber(ARGV[9]), tonumber(ARGV[10])
local BETWEEN, DIGITS, MOST_LOOKED_AT, LARGEST_PAGE, FIRST = '\31', 18, 100000, 1000, 11
local truncated, looked = 0, 0

-- A member has after the letter of its section: `c`: start (counted back) and recorded; `e`: end, start, recorded; `s`:
-- superseded, start, end, recorded. All are digits alone, which compare as the numbers do.
local WORDS = { c = 2, e = 3, s = 4 }
local function time_at(member, from, which)
  return string.sub(member, from + (which - 1) * DIGITS, from + which * DIGITS - 1)
end

-- The start of an edge, counted back, if it holds at the time.
local function start_if_holds(section, member, from)
  if is_past and time_at(member, from, WORDS[section]) > known then return nil end
  local start = time_at(member, from, section == 'c' and 1 or 2)
  if start < world_back then return nil end
  if section == 's' and time_at(member, from, 3) <= world then return nil end
  return start
end

local function is_of_type(kind, type)
  if types == '' then return true end
  if kind == 'a' and string.find(types, BETWEEN .. '@' .. BETWEEN, 1, true) then return true end
  return string.find(types, BETWEEN .. type .. BETWEEN, 1, true) ~= nil
end

-- Read one section of an entity's edges from the first one that may hold, in growing steps.
local function scan(entity, kind, section, low, found)
  local head = entity .. BETWEEN .. kind .. section
  local from, behind = #head + 1, #head + 1 + WORDS[section] * DIGITS
  local next_low, high, taken, left, most = '[' .. head .. low, '(' .. head .. ':', 0, patience, fan_out + 1
  while true do
    local page = redis.call('ZRANGEBYLEX', edges, next_low, high, 'LIMIT', 0, most)
    looked, left = looked + #page, left - #page
    for _, member in ipairs(page) do
      local start = start_if_holds(section, member, from)
      local type, other, fact
      if start then type, other, fact = string.match(member, '^[<>]([^\31]*)\31([^\31]*)\31(.*)$', behind) end
      if start and is_of_type(kind, type) then
        taken = taken + 1
        found[#found + 1] = { member = member, start = start, other = other, fact = fact }
        if taken > fan_out then return end
      end
    end
    if #page < most then return end
    if left <= 0 or looked > MOST_LOOKED_AT then
      truncated = 1
      return
    end
    next_low, most = '(' .. page[#page], math.max(most, math.min(2 * most, LARGEST_PAGE))
  end
end

local function is_newer(one, other)
  if one.start ~= other.start then return one.start < other.start end
  return one.member < other.member
end

-- The edges of an entity that hold, newest first.
local function edges_of(entity)
  local found = {}
  for kind in string.gmatch(kinds, '.') do
    scan(entity, kind, 'c', world_back, found)
    -- The edge that ends soonest after the time is first: in a long history it is the one that holds then.
    scan(entity, kind, 'e', world .. ':', found)
    if is_past then scan(entity, kind, 's', known .. ':', found) end
  end
  table.sort(found, is_newer)
  if #found > fan_out then truncated = 1 end
  return found
end

local distance, level, walked, answer = {}, {}, {}, { 0 }
for i = FIRST, #ARGV do
  if not distance[ARGV[i]] then
    distance[ARGV[i]] = 0
    level[#level + 1] = ARGV[i]
  end
end

-- Whether there is room for another edge.
local function step(edge, far, reached)
  if walked[edge.fact] then return true end
  if #answer > 2 * limit then
    truncated = 1
    return false
  end
  walked[edge.fact] = true
  if edge.other ~= '' and not distance[edge.other] then
    distance[edge.other] = far
    reached[#reached + 1] = edge.other
  end
  answer[#answer + 1], answer[#answer + 2] = distance[edge.other] or far, edge.member
  return true
end

local function walk(far)
  local reached = {}
  for _, entity in ipairs(level) do
    local found = edges_of(entity)
    for i = 1, math.min(#found, fan_out) do
      if not step(found[i], far, reached) then return {} end
    end
  end
  return reached
end

for far = 1, depth do level = walk(far) end
answer[1] = truncated
return answer
