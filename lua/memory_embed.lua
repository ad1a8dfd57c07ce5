-- memory_embed: write the missing vectors of several memories.
--
-- INCLUDE time ledger mutation packing
-- KEYS keys...     hash  the record of each; then log and pending
-- ARGV vectors...  blob  for each: id, version it has, vector
--
-- RETURNS the number of written records; the others have changed or were deleted
-- FAILS   CLOSED, STALE, WRONGTYPE
local count = #KEYS - 5
local log, pending = KEYS[#KEYS - 1], KEYS[#KEYS]
local version, given = tick(count), 0
if count > 1 then packet = {} end

local function give(record, i)
  local id, expect, vector = ARGV[3 + 3 * i], ARGV[4 + 3 * i], ARGV[5 + 3 * i]
  local held = redis.call('HGET', record, 'version')
  if held and held ~= expect then return end
  redis.call('ZREM', pending, id)
  if not held then return end
  local stamp = whole(version + i - 1)
  redis.call('HSET', record, 'vector', vector)
  redis.call('ZADD', log, stamp, id)
  announce(stamp, 'memory.embedded', record)
  given = given + 1
end

for i = 1, count do give(KEYS[3 + i], i) end
return done(whole(given))
