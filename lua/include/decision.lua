-- decision: how plans and executions lie at the server, and in which state an execution is.
--
-- A plan is JSON under its id; its eight-digit hash names the newest id that bears it. An execution is JSON under
-- the id of its plan. Inside a JSON text no quote stands bare, so a pattern with bare quotes finds only what
-- belongs to the structure, whatever the texts of users say. Needs time.lua before it.

local function named(hash, plan)
  return redis.call('HGET', hash, plan)
end

-- The id of a plan told by id or by hash; the hash of evicted plans still names the last one that was executed.
local function plan_id_of(plan, plans, executions)
  if #plan ~= 8 then return plan end
  return named(plans, plan) or named(executions, plan)
end

-- What an execution takes over from its plan: `"plan_id":...,"confidence":...`.
local function facts_of(text)
  return string.match(text, '("plan_id":.-,"confidence":[^,}]+)')
end

-- A symbol as JSON spells it, which is also how counts and lists name it.
local function symbol_of(facts)
  return string.match(facts, '"symbol":"(.-)","action":')
end

-- What the JSON of an execution says; a running one whose lease is over is an orphan.
local function understood(text, now)
  local state, fence, attempt = string.match(text, '"state":"(%a+)","fence":(%d+),"attempt":(%d+),')
  local lease_ends = tonumber(string.match(text, '^{"lease_ends_us":(%d+),') or '0')
  local remaining_ms = math.max(0, math.ceil((lease_ends - now) / 1000))
  if state == 'running' and lease_ends <= now then state = 'orphaned' end
  return { text = text, state = state, fence = fence, attempt = attempt, remaining_ms = whole(remaining_ms) }
end

-- The execution of a plan; nil when it was never begun.
local function execution_of(executions, id, now)
  local text = redis.call('HGET', executions, id)
  return text and understood(text, now) or nil
end
