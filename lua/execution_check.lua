-- execution_check: whether a plan was executed, or is being executed.
--
-- INCLUDE time decision
-- KEYS plans       hash  plans by id, and the newest id by plan hash
-- KEYS executions  hash  executions by plan id
-- ARGV plan  text  id or hash
--
-- RETURNS `<ms left> <state> <JSON>`, `none` when it was never begun, or `absent`
-- FAILS   WRONGTYPE
local plans, executions, plan = KEYS[1], KEYS[2], ARGV[1]
local id = plan_id_of(plan, plans, executions)
if not id then return 'absent' end
local held = execution_of(executions, id, microseconds())
if held then return held.remaining_ms .. ' ' .. held.state .. ' ' .. held.text end
return named(plans, id) and 'none' or 'absent'
