-- execution_renew: renew the lease of a running execution.
--
-- INCLUDE time ledger mutation decision
-- KEYS plans       hash  plans by id, and the newest id by plan hash
-- KEYS executions  hash  executions by plan id
-- ARGV plan      text  id or hash
-- ARGV fence     int   fence of the claim
-- ARGV lease_ms  int   lease from now on
--
-- RETURNS `renewed <ms left> running <JSON>`; `lost` if the lease has expired or another executor has the claim; or
--         `absent`
-- FAILS   CLOSED, STALE, WRONGTYPE
local plans, executions = KEYS[4], KEYS[5]
local plan, fence, lease_ms = ARGV[6], ARGV[7], ARGV[8]
local id, now = plan_id_of(plan, plans, executions), microseconds()
if not id then return 'absent' end

local held = execution_of(executions, id, now)
if not held then return named(plans, id) and 'lost' or 'absent' end
if held.state ~= 'running' or held.fence ~= fence then return 'lost' end
local ends = whole(now + tonumber(lease_ms) * 1000)
local text = '{"lease_ends_us":' .. ends .. string.match(held.text, '^{"lease_ends_us":%d+(.*)$')
redis.call('HSET', executions, id, text)
return done('renewed ' .. lease_ms .. ' running ' .. text)
