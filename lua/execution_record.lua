-- execution_record: record the outcome of an execution, once.
--
-- INCLUDE time ledger mutation header keeping decision decided
-- KEYS plans       hash  plans by id, and the newest id by plan hash
-- KEYS session     none  the key from which those of the session are derived
-- KEYS order       list  plans, oldest first
-- KEYS executions  hash  executions by plan id
-- KEYS finished    list  `<id> <state> <plan hash> <symbol>`, newest first
-- KEYS stats       hash  counts
-- ARGV verb     text  `finish` by the claimer, `mark` even without a claim, `resolve` for orphaned and unknown ones
-- ARGV plan     text  id or hash
-- ARGV fence    int   fence of the claim; empty without one
-- ARGV state    text  `succeeded`, `failed` or `unknown`
-- ARGV given    text  `"symbol":..,"action":..,"confidence":..` from the caller; empty: from the plan
-- ARGV outcome  text  `"status":..,"order_id":..`: the same outcome again changes nothing
-- ARGV details  text  the other fields, as JSON
-- ARGV events   text  prefix of the session's channels
-- ARGV history  0|1   1: the durable tier keeps executions that leave the list
--
-- RETURNS `recorded <JSON>`, `same <JSON>` if that was recorded before, `already <state>`, `lost`, `unbegun`,
--         `busy <ms left>` while it still runs, or `absent`; COLD when the session may be in the durable
--         tier alone
-- FAILS   CLOSED, STALE, WRONGTYPE
local plans, session, order, executions, finished, stats = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local verb, plan, fence, state, given = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local outcome, details, events, history = ARGV[11], ARGV[12], ARGV[13], ARGV[14]
local KEPT, MOST_DROPPED = 1000, 4
local id = plan_id_of(plan, plans, executions)
if not id then return is_cold(1) and 'COLD' or 'absent' end
local held = execution_of(executions, id, microseconds())
local source = held and held.text or redis.call('HGET', plans, id)
if not source then return is_cold(1) and 'COLD' or 'absent' end

local function verdict()
  if not held then
    if verb == 'resolve' then return 'unbegun' end
    return verb == 'mark' and fence == '' and 'record' or 'lost'
  end
  local is_open = held.state == 'running' or held.state == 'orphaned'
  if verb == 'resolve' and is_open then
    return held.state == 'orphaned' and 'record' or 'busy ' .. held.remaining_ms
  end
  if is_open then return held.fence == fence and 'record' or 'lost' end
  if fence ~= '' and fence ~= held.fence then return 'lost' end
  if string.find(held.text, ',' .. outcome .. ',', 1, true) then return 'same ' .. held.text end
  return verb == 'resolve' and held.state == 'unknown' and 'record' or 'already ' .. held.state
end

local decided = verdict()
if decided ~= 'record' then return decided end
local version = tick(2)
local recorded, counted_at = whole(version), whole(version + 1)

-- Delete the oldest ones, but not while their plan exists, which could be begun again; nor unresolved ones.
local function drop()
  local last, was, bearing = string.match(redis.call('LINDEX', finished, -1), '^(%d+) (%a+) (%x+) ')
  if redis.call('HEXISTS', plans, last) == 1 then return end
  redis.call('RPOP', finished)
  if was == 'unknown' then return end
  redis.call('HDEL', executions, last)
  if history == '0' then keep_document(1, 'execution', 'execution/' .. last, recorded) end
  if redis.call('HGET', executions, bearing) ~= last then return end
  redis.call('HDEL', executions, bearing)
  keep_document(1, 'name', 'name/' .. bearing, recorded)
end

local function entry(of, facts)
  return id .. ' ' .. of .. ' ' .. string.match(facts, '"plan_hash":"(%x+)"') .. ' ' .. symbol_of(facts)
end

local facts = facts_of(source)
if held and held.state == 'unknown' then
  redis.call('LREM', finished, 1, entry('unknown', facts))
  count(stats, 'unknown', symbol_of(facts), -1)
end
if given ~= '' then facts = string.match(facts, '^(.-,)"symbol":') .. given end
local token = held and verb ~= 'resolve' and held.fence or recorded
local text = '{' .. heading(state, token, held and held.attempt or '1', version) .. facts
  .. ',' .. outcome .. ',' .. details .. '}'
redis.call('HSET', executions, id, text)
keep_document(1, 'execution', 'execution/' .. id, recorded, text)
local length = redis.call('LPUSH', finished, entry(state, facts))
for _ = 1, math.min(length - KEPT, MOST_DROPPED) do drop() end
count(stats, state, symbol_of(facts), 1)
announce(recorded, 'execution.recorded', session .. ':' .. id)
publish(events, 'execution.recorded', text)
tell_counts(stats, session, symbol_of(facts), events, counted_at)
if is_kept(1) then keep_session(stats, redis.call('LLEN', order), redis.call('LLEN', finished), counted_at) end
return done('recorded ' .. text)
