-- execution_stats: the counts of a session or of one of its symbols, and its last executions.
--
-- INCLUDE absent
-- KEYS plans       hash  plans by id
-- KEYS stats       hash  counts
-- KEYS finished    list  `<id> <state> <plan hash> <symbol>`, newest first
-- KEYS executions  hash  executions by plan id
-- ARGV symbol  text  as in JSON; empty for the whole session
-- ARGV limit   int   number of executions to return
-- ARGV cold    0|1   1: return COLD if the session is not here
--
-- RETURNS {succeeded, failed, unknown, prevented, JSON of each of the last executions, newest first}; COLD
--         when the session may be in the durable tier alone
-- FAILS   WRONGTYPE
local plans, stats, finished, executions = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local wanted, limit, cold = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local tail = wanted == '' and '' or ' ' .. wanted
local found = redis.call('HMGET', stats, 'succeeded' .. tail, 'failed' .. tail, 'unknown' .. tail, 'prevented' .. tail)
for i = 1, 4 do found[i] = found[i] or '0' end

local page_length = wanted == '' and limit or 100
local ids, first = {}, 0
repeat
  local page = redis.call('LRANGE', finished, first, first + page_length - 1)
  for i = 1, #page do
    local id, symbol = string.match(page[i], '^(%d+) %a+ %x+ (.*)$')
    if #ids < limit and (wanted == '' or symbol == wanted) then ids[#ids + 1] = id end
  end
  first = first + page_length
until #ids >= limit or #page < page_length

if #ids == 0 then return or_cold(plans, cold, found) end
for _, text in ipairs(redis.call('HMGET', executions, unpack(ids))) do found[#found + 1] = text end
return found
