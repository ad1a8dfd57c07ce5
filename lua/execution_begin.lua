-- execution_begin: claim the one execution of a plan, for the length of a lease.
--
-- INCLUDE time ledger mutation header keeping decision decided
-- KEYS plans       hash  plans by id, and the newest id by plan hash
-- KEYS session     none  the key from which those of the session are derived
-- KEYS order       list  plans, oldest first
-- KEYS executions  hash  executions by plan id
-- KEYS finished    list  executions that have ended
-- KEYS stats       hash  counts
-- KEYS refusals    list  the newest refused duplicates, newest first
-- ARGV plan      text  id or hash
-- ARGV lease_ms  int   how long without renewal
-- ARGV policy    text  `takeover`: an orphaned execution is begun again; `never`: it must be resolved
-- ARGV events    text  prefix of the session's channels
--
-- RETURNS `started <ms left> running <JSON>`, `refused <ms left> <state> <JSON>` with its record, or `absent`;
--         COLD when the session may be in the durable tier alone
-- FAILS   CLOSED, STALE, WRONGTYPE
local plans, session, order, executions, finished, stats = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local refusals = KEYS[10]
local plan, lease_ms, policy, events = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local id, now = plan_id_of(plan, plans, executions), microseconds()
if not id then return is_cold(1) and 'COLD' or 'absent' end

local function keep(version)
  if is_kept(1) then keep_session(stats, redis.call('LLEN', order), redis.call('LLEN', finished), version) end
end

local held = execution_of(executions, id, now)
if held and not (held.state == 'orphaned' and policy == 'takeover') then
  keep(prevented(stats, refusals, session, symbol_of(facts_of(held.text)), events, 'execution', id))
  return done('refused ' .. held.remaining_ms .. ' ' .. held.state .. ' ' .. held.text)
end

local source = held and held.text or redis.call('HGET', plans, id)
if not source then return is_cold(1) and 'COLD' or 'absent' end
local version = whole(tick(1))
local attempt = held and whole(tonumber(held.attempt) + 1) or '1'
local text = '{"lease_ends_us":' .. whole(now + tonumber(lease_ms) * 1000) .. ',"lease_ms":' .. lease_ms .. ','
  .. heading('running', version, attempt, version) .. facts_of(source) .. '}'
redis.call('HSET', executions, id, text)
keep_document(1, 'execution', 'execution/' .. id, version, text)
keep(version)
announce(version, 'execution.begun', session .. ':' .. id)
return done('started ' .. lease_ms .. ' running ' .. text)
