-- execution_begin: claim the one execution of each of some plans, for the length of a lease.
--
-- Claims that one client makes at the same moment in a session share one call; they are independent.
--
-- INCLUDE time ledger mutation packing sharing header keeping decision decided
-- KEYS plans       hash  plans by id, and the newest id by plan hash
-- KEYS session     none  the key from which those of the session are derived
-- KEYS order       list  plans, oldest first
-- KEYS executions  hash  executions by plan id
-- KEYS finished    list  executions that have ended
-- KEYS stats       hash  counts
-- KEYS refusals    list  the newest refused duplicates, newest first
-- ARGV events     text  prefix of the session's channels
-- ARGV claims...  text  of each claim:
--                         id or hash of the plan
--                         how long without renewal, in milliseconds
--                         `takeover`: an orphaned execution is begun again; `never`: it must be resolved
--
-- RETURNS the reply of one claim; of several, each with its length and a space before it. A reply is
--         `started <ms left> running <JSON>`, `refused <ms left> <state> <JSON>` with its record, or `absent`;
--         COLD, for all, when the session may be in the durable tier alone
-- FAILS   CLOSED, STALE, WRONGTYPE
local plans, session, order, executions, finished, stats = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local refusals, events = KEYS[10], ARGV[6]
local BEFORE_FIRST, ARGUMENTS = 6, 3
if is_cold(1) then return 'COLD' end
local now, count_of_claims = microseconds(), (#ARGV - BEFORE_FIRST) / ARGUMENTS
if count_of_claims > 1 then packet = {} end

-- Returns the reply of a claim.
local function begin(plan, lease_ms, policy)
  local id = plan_id_of(plan, plans, executions)
  if not id then return 'absent' end
  local held = execution_of(executions, id, now)
  if held and not (held.state == 'orphaned' and policy == 'takeover') then
    prevented(next_version(count_of_claims), stats, refusals, session, symbol_of(facts_of(held.text)), events, 'execution', id)
    return 'refused ' .. held.remaining_ms .. ' ' .. held.state .. ' ' .. held.text
  end

  local source = held and held.text or redis.call('HGET', plans, id)
  if not source then return 'absent' end
  local version = next_version(count_of_claims)
  local attempt = held and whole(tonumber(held.attempt) + 1) or '1'
  local text = '{"lease_ends_us":' .. whole(now + tonumber(lease_ms) * 1000) .. ',"lease_ms":' .. lease_ms .. ','
    .. heading('running', version, attempt, version) .. facts_of(source) .. '}'
  redis.call('HSET', executions, id, text)
  keep_document(1, 'execution', 'execution/' .. id, version, text)
  announce(version, 'execution.begun', session .. ':' .. id)
  return 'started ' .. lease_ms .. ' running ' .. text
end

local replies = {}
for i = 1, count_of_claims do
  local at = BEFORE_FIRST + (i - 1) * ARGUMENTS
  replies[i] = begin(ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
end

if newest_version and is_kept(1) then
  keep_session(stats, redis.call('LLEN', order), redis.call('LLEN', finished), newest_version)
end
return done(joined(replies))
