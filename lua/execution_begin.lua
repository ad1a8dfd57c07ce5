-- execution_begin: claim the one execution of a plan, for the length of a lease.
--
-- INCLUDE time ledger mutation decision decided
-- KEYS session     none  the key beside which all of it lies
-- KEYS plans       hash  plans by id, and the newest id by plan hash
-- KEYS executions  hash  executions by plan id
-- KEYS stats       hash  counts
-- ARGV plan      text  id or hash
-- ARGV lease_ms  int   how long without renewal
-- ARGV policy    text  `takeover`: an orphan is begun anew; `never`: it is left to be resolved
-- ARGV events    text  what the channels of the session begin with
--
-- RETURNS `started <ms left> running <JSON>`, `refused <ms left> <state> <JSON>` with what is known of it, or `absent`
-- FAILS   CLOSED, STALE, WRONGTYPE
local session, plans, executions, stats = KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local plan, lease_ms, policy, events = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local id, now = plan_id_of(plan, plans, executions), microseconds()
if not id then return 'absent' end

local held = execution_of(executions, id, now)
if held and not (held.state == 'orphaned' and policy == 'takeover') then
  prevented(stats, session, symbol_of(facts_of(held.text)), events)
  return done('refused ' .. held.remaining_ms .. ' ' .. held.state .. ' ' .. held.text)
end

local source = held and held.text or redis.call('HGET', plans, id)
if not source then return 'absent' end
local version = tick(1)
local attempt = held and whole(tonumber(held.attempt) + 1) or '1'
local text = '{"lease_ends_us":' .. whole(now + tonumber(lease_ms) * 1000) .. ','
  .. heading('running', whole(version), attempt, version) .. facts_of(source) .. '}'
redis.call('HSET', executions, id, text)
return done('started ' .. lease_ms .. ' running ' .. text)
