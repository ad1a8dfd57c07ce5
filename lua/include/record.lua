-- record: the header line of a key/value record, `<version> <actor>[ <created>] <codec>`.
--
-- `sharedmem/data/records.py` reads the same grammar: versions and times of 16 digits, an actor without blanks, a codec
-- of small letters, a line feed, within the first 256 bytes. Every other string, also the empty one, is a foreign one.

local LONGEST_HEADER = 255

-- Version ('' absent, 'x' a foreign string, nil another type), time of creation (nil for a foreign one), and blob
-- path (or nil) of what a key holds.
local function held(key)
  local start = redis.pcall('GETRANGE', key, 0, LONGEST_HEADER)
  if type(start) == 'table' then return nil, nil, nil end
  if start == '' then return redis.call('EXISTS', key) == 1 and 'x' or '', nil, nil end
  local version, created, codec = string.match(start, '^(%d+) %S+ ?(%d*) (%l+)\n')
  if not version or #version ~= 16 or (created ~= '' and #created ~= 16) then return 'x', nil, nil end
  if created == '' then created = version end
  if codec ~= 'blob' then return version, created, nil end
  return version, created, string.match(redis.call('GET', key), '"path":"([^"]*)"')
end

local function type_of(key)
  local answer = redis.call('TYPE', key)
  return type(answer) == 'table' and answer.ok or answer
end
