-- value_write: write values under new versions, each on its condition.
--
-- Writes that one client makes at the same moment share one call; they are independent unless `together`.
--
-- INCLUDE time ledger mutation packing header keeping record
-- KEYS values...  string  the records, one for each pair of arguments
-- ARGV together  0|1   1: all or none, refused as a whole if a key holds another type
-- ARGV terms...  text  '' for the usual terms, else '<expect> <ttl_ms> <codec>': expect is '*' any (else ''
--                      absent, 'x' a string without a header, or the exact version), ttl_ms 0 none (else -1 as
--                      before, or the expiry), codec 'json' (else the name of the payload's coding)
-- ARGV body...   blob  the payload
--
-- RETURNS one line a record: `<version>[ <path of the blob it replaced>]`, or `C <current version>` if the
--         condition failed (empty: no value, `x`: a string without a header), `L` if the value of the condition
--         may be in the durable tier alone, `U` if its kind is unknown, `T <type>` if the key holds
--         another type (`S` for the others, if that stopped all),
--         `E <error>` if the server refused
-- FAILS   CLOSED, STALE
local together, first_key, first_argument = ARGV[6], 3, 6
local count = #KEYS - first_key

local function write(i, key, terms, body, version)
  local expect, ttl_ms, codec = '*', '0', 'json'
  if terms ~= '' then expect, ttl_ms, codec = string.match(terms, '^(%S*) (%S+) (%S+)$') end
  if is_unknown(i) then return 'U' end
  local current, created, blob = held(key)
  if not current then return 'T ' .. type_of(key) end
  if expect ~= '*' and current == '' and is_cold(i) then return 'L' end
  if expect ~= '*' and expect ~= current then
    return 'C ' .. current
  end
  local header = version .. ' ' .. actor .. (created and ' ' .. created or '') .. ' ' .. codec
  local answer
  if ttl_ms == '0' then
    answer = redis.pcall('SET', key, header .. '\n' .. body)
  elseif ttl_ms == '-1' then
    answer = redis.pcall('SET', key, header .. '\n' .. body, 'KEEPTTL')
  else
    answer = redis.pcall('SET', key, header .. '\n' .. body, 'PX', ttl_ms)
  end
  if answer.err then return 'E ' .. answer.err end
  keep_value(i, version, created, codec, body, ttl_ms)
  announce(version, 'write', key)
  return blob and version .. ' ' .. blob or version
end

local replies, stopped = {}, false
if together == '1' then
  for i = 1, count do
    if is_unknown(i) then return 'UNKNOWN' end
    local kind = type_of(KEYS[first_key + i])
    if kind ~= 'string' and kind ~= 'none' then replies[i], stopped = 'T ' .. kind, true else replies[i] = 'S' end
  end
end
if stopped then return table.concat(replies, '\n') end

local version = tick(count)
if count > 1 then packet = {} end
for i = 1, count do
  local at = first_argument + i * 2
  replies[i] = write(i, KEYS[first_key + i], ARGV[at - 1], ARGV[at], whole(version + i - 1))
end
return done(table.concat(replies, '\n'))
