-- decided: what is counted of decisions, and told to those who follow them.
--
-- Needs mutation.lua and decision.lua before it.

local function quoted(name)
  return '"' .. string.gsub(name, '"', '\\"') .. '"'
end

-- Milliseconds of a version.
local function at_ms(version)
  return whole(math.floor(version / 1000))
end

-- Count for the session and for the symbol.
local function count(stats, what, symbol, by)
  redis.call('HINCRBY', stats, what, by)
  redis.call('HINCRBY', stats, what .. ' ' .. symbol, by)
end

local function tell(events, what, message)
  redis.call('PUBLISH', events .. what, message)
end

-- Tell the counts of the whole session, and by which symbol they changed.
local function tell_counts(stats, session, symbol, events, version)
  local found = redis.call('HMGET', stats, 'succeeded', 'failed', 'unknown', 'prevented')
  for i = 1, 4 do found[i] = tonumber(found[i] or '0') end
  local total = found[1] + found[2] + found[3]
  local message = '{"session_id":' .. quoted(string.match(session, '[^:]*$'))
    .. ',"symbol":"' .. symbol .. '","total_executions":' .. whole(total)
    .. ',"successful_executions":' .. whole(found[1]) .. ',"failed_executions":' .. whole(found[2])
    .. ',"win_rate":' .. string.format('%.6f', total > 0 and found[1] / total or 0)
    .. ',"duplicates_prevented":' .. whole(found[4]) .. '}'
  announce(version, 'stats.updated', session)
  tell(events, 'stats.updated', message)
end

-- Count a plan or an execution that was kept from happening twice.
local function prevented(stats, session, symbol, events)
  count(stats, 'prevented', symbol, 1)
  tell_counts(stats, session, symbol, events, whole(tick(1)))
end

-- The beginning of an execution's JSON, up to the facts of its plan.
local function heading(state, fence, attempt, version)
  return '"state":"' .. state .. '","fence":' .. fence .. ',"attempt":' .. attempt .. ',"actor":' .. quoted(actor)
    .. ',"timestamp_ms":' .. at_ms(version) .. ','
end
