-- record: read a key that should hold a record (see header.lua).
--
-- Needs header.lua before it.

-- Version ('' absent, 'x' a foreign string, nil another type), time of creation (nil for a foreign one), and blob
-- path (or nil) of a key.
local function held(key)
  local start = redis.pcall('GETRANGE', key, 0, LONGEST_HEADER - 1)
  if type(start) == 'table' then return nil, nil, nil end
  if start == '' then return redis.call('EXISTS', key) == 1 and 'x' or '', nil, nil end
  local version, created, codec = header_of(start)
  if not version then return 'x', nil, nil end
  if codec ~= 'blob' then return version, created, nil end
  return version, created, string.match(redis.call('GET', key), '"path":"([^"]*)"')
end

local function type_of(key)
  local answer = redis.call('TYPE', key)
  return type(answer) == 'table' and answer.ok or answer
end
