-- execution_open: a page of the executions that have not ended for good.
--
-- INCLUDE time decision absent
-- KEYS plans       hash  plans by id
-- KEYS executions  hash  executions by plan id
-- ARGV cursor  text  end of the last page; '0' at first
-- ARGV limit   int   approximate number of executions to read
-- ARGV cold    0|1   1: return COLD if the session is not here
--
-- RETURNS {cursor of the next page or '0', `<state> <JSON>` of each that is running, orphaned or unknown};
--         COLD when the session may be in the durable tier alone
-- FAILS   WRONGTYPE
local plans, executions, cursor, limit, cold = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local now, page = microseconds(), redis.call('HSCAN', executions, cursor, 'COUNT', limit)
local found = { page[1] }

for i = 2, #page[2], 2 do
  local text = page[2][i]
  -- The hash also contains plan hashes, each with the id of an execution.
  local held = string.sub(text, 1, 1) == '{' and understood(text, now)
  if held and held.state ~= 'succeeded' and held.state ~= 'failed' then
    found[#found + 1] = held.state .. ' ' .. text
  end
end
if #found == 1 then return or_cold(plans, cold, found) end
return found
