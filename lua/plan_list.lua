-- plan_list: the newest plans of a session.
--
-- INCLUDE absent
-- KEYS plans  hash  plans by id
-- KEYS order  list  `<id> <plan hash> <symbol>`, oldest first
-- ARGV symbol  text  only plans for it, as in JSON; empty for all
-- ARGV limit   int   most plans, up to 1000
-- ARGV cold    0|1   1: return COLD if the session is not here
--
-- RETURNS the JSON of each, newest first; COLD when the session may be in the durable tier alone
-- FAILS   WRONGTYPE
local plans, order, wanted, limit, cold = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local page_length = wanted == '' and limit or 500
local ids, last = {}, -1

repeat
  local page = redis.call('LRANGE', order, last - page_length + 1, last)
  for i = #page, 1, -1 do
    local id, symbol = string.match(page[i], '^(%d+) %x+ (.*)$')
    if #ids < limit and (wanted == '' or symbol == wanted) then ids[#ids + 1] = id end
  end
  last = last - page_length
until #ids >= limit or #page < page_length

if #ids == 0 then return or_cold(plans, cold, {}) end
return redis.call('HMGET', plans, unpack(ids))
