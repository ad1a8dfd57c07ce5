-- decided: counters of decisions, and their events.
--
-- Needs mutation.lua, keeping and decision.lua before it. For the durable tier a session is one key, that of its plans
-- (the first of the script's own): its head has the counts of all, and a document for each symbol has that symbol's.

local function quoted(name)
  return '"' .. string.gsub(name, '"', '\\"') .. '"'
end

-- Milliseconds of a version.
local function at_ms(version)
  return whole(math.floor(version / 1000))
end

-- Count for the session and for the symbol.
local counted = {}
local function count(stats, what, symbol, by)
  redis.call('HINCRBY', stats, what, by)
  redis.call('HINCRBY', stats, what .. ' ' .. symbol, by)
  counted[symbol] = true
end

-- How many have succeeded, failed, ended unknown, and been prevented; tail is `` or ` <symbol>`.
local function counts_of(stats, tail)
  local found = redis.call('HMGET', stats, 'succeeded' .. tail, 'failed' .. tail, 'unknown' .. tail, 'prevented' .. tail)
  for i = 1, 4 do found[i] = tonumber(found[i] or '0') end
  return found
end

local function counts_as_json(stats, tail)
  local found = counts_of(stats, tail)
  return '"succeeded":' .. whole(found[1]) .. ',"failed":' .. whole(found[2]) .. ',"unknown":' .. whole(found[3])
    .. ',"prevented":' .. whole(found[4])
end

-- The session's head for the durable tier at the end of a step: its counters, and the lengths of its lists.
local function keep_session(stats, listed, ended, version)
  for symbol in pairs(counted) do
    local body = '{"symbol":"' .. symbol .. '",' .. counts_as_json(stats, ' ' .. symbol) .. '}'
    keep_document(1, 'count', 'count/' .. symbol, version, body)
  end
  local body = '{' .. counts_as_json(stats, '') .. ',"finished":' .. whole(ended) .. '}'
  keep_head(1, 'session', version, whole(listed), body)
end

local function publish(events, what, message)
  redis.call('PUBLISH', events .. what, message)
end

-- Publish the counters of the whole session, and the symbol of the change.
local function tell_counts(stats, session, symbol, events, version)
  local found = counts_of(stats, '')
  local total = found[1] + found[2] + found[3]
  local message = '{"session_id":' .. quoted(string.match(session, '[^:]*$'))
    .. ',"symbol":"' .. symbol .. '","total_executions":' .. whole(total)
    .. ',"successful_executions":' .. whole(found[1]) .. ',"failed_executions":' .. whole(found[2])
    .. ',"win_rate":' .. string.format('%.6f', total > 0 and found[1] / total or 0)
    .. ',"duplicates_prevented":' .. whole(found[4]) .. '}'
  announce(version, 'stats.updated', session)
  publish(events, 'stats.updated', message)
end

-- The newest refusals are remembered for as long as the longest window; the durable tier does not store them.
local MOST_REFUSALS, REFUSALS_LIVE_MS = 50, '2592000000'

-- Count a plan or execution (`what`) that is prevented in favour of the plan with the id. No caller waits until that is
-- durable.
local function prevented(version, stats, refusals, session, symbol, events, what, id)
  count(stats, 'prevented', symbol, 1)
  redis.call('LPUSH', refusals, version .. ' ' .. what .. ' ' .. id .. ' ' .. actor .. ' ' .. symbol)
  redis.call('LTRIM', refusals, 0, MOST_REFUSALS - 1)
  redis.call('PEXPIRE', refusals, REFUSALS_LIVE_MS)
  tell_counts(stats, session, symbol, events, version)
  wait_for_none()
end

-- The beginning of an execution's JSON, up to the fields of its plan.
local function heading(state, fence, attempt, version)
  return '"state":"' .. state .. '","fence":' .. fence .. ',"attempt":' .. attempt .. ',"actor":' .. quoted(actor)
    .. ',"timestamp_ms":' .. at_ms(version) .. ','
end
