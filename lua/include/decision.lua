-- decision: the format of plans and executions at the server, and the state of an execution.
--
-- A plan is JSON under its id; its eight-digit hash gives the newest id with this hash. An execution is JSON under
-- the id of its plan. Inside a JSON text quotes are escaped, so a pattern with plain quotes matches only the
-- structure, whatever the texts of users contain. Needs time.lua before it.

local function named(hash, plan)
  return redis.call('HGET', hash, plan)
end

-- The id of a plan from its id or hash; the hash of evicted plans still gives the last one that was executed.
local function plan_id_of(plan, plans, executions)
  if #plan ~= 8 then return plan end
  return named(plans, plan) or named(executions, plan)
end

-- The fields that an execution copies from its plan: `"plan_id":...,"confidence":...`.
local function facts_of(text)
  return string.match(text, '("plan_id":.-,"confidence":[^,}]+)')
end

-- A symbol as in JSON, which counters and lists use too.
local function symbol_of(facts)
  return string.match(facts, '"symbol":"(.-)","action":')
end

-- The state from an execution's JSON; a running one with an expired lease is orphaned.
local function understood(text, now)
  local state, fence, attempt = string.match(text, '"state":"(%a+)","fence":(%d+),"attempt":(%d+),')
  local lease_ends = tonumber(string.match(text, '^{"lease_ends_us":(%d+),') or '0')
  local remaining_ms = math.max(0, math.ceil((lease_ends - now) / 1000))
  if state == 'running' and lease_ends <= now then state = 'orphaned' end
  return { text = text, state = state, fence = fence, attempt = attempt, remaining_ms = whole(remaining_ms) }
end

-- The execution of a plan; nil if it was never begun.
local function execution_of(executions, id, now)
  local text = redis.call('HGET', executions, id)
  return text and understood(text, now) or nil
end
