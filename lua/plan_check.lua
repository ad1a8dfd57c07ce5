-- plan_check: whether the same plan was saved, and how long ago.
--
-- INCLUDE time absent
-- KEYS plans       hash  plans by id
-- KEYS duplicates  hash  `<id> <confidence> <method>` by digest
-- ARGV digest  text  digest of the plan
-- ARGV cold    0|1   1: return COLD if the session is not here
--
-- RETURNS `<ms since> <id> <confidence> <method>`, or empty; `damaged`: another client has written what is known of the plan;
--         COLD when the session may be in the durable tier alone
-- FAILS   WRONGTYPE
local plans, duplicates, digest, cold = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local known = redis.call('HGET', duplicates, digest)
if not known then return or_cold(plans, cold, '') end
local id = string.match(known, '^%d+')
if not id then return 'damaged' end
local since_us = microseconds() - tonumber(id)
return whole(math.max(0, math.floor(since_us / 1000))) .. ' ' .. known
