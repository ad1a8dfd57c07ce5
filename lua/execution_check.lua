-- execution_check: whether a plan was executed, or is being executed.
--
-- INCLUDE time decision absent
-- KEYS plans       hash  plans by id, and the newest id by plan hash
-- KEYS executions  hash  executions by plan id
-- ARGV plan  text  id or hash
-- ARGV cold  0|1   1: return COLD if the session is not here
--
-- RETURNS `<ms left> <state> <JSON>`, `none` if it was never begun, or `absent`; COLD when the session may be in
--         the durable tier alone
-- FAILS   WRONGTYPE
local plans, executions, plan, cold = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local id = plan_id_of(plan, plans, executions)
if not id then return or_cold(plans, cold, 'absent') end
local held = execution_of(executions, id, microseconds())
if held then return held.remaining_ms .. ' ' .. held.state .. ' ' .. held.text end
return named(plans, id) and 'none' or or_cold(plans, cold, 'absent')
