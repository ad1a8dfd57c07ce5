-- graph_embed: write the missing vectors of several graph records.
--
-- INCLUDE time ledger mutation packing
-- KEYS keys...     hash  the record of each; then log
-- ARGV vectors...  blob  for each: id, version it has, vector
--
-- RETURNS the number of written records; the others have changed or were deleted
-- FAILS   CLOSED, STALE, WRONGTYPE
local count, log = #KEYS - 4, KEYS[#KEYS]
local version, given = tick(count), 0
if count > 1 then packet = {} end

local function give(record, i)
  local id, expect, vector = ARGV[3 + 3 * i], ARGV[4 + 3 * i], ARGV[5 + 3 * i]
  if redis.call('HGET', record, 'version') ~= expect then return end
  local stamp = whole(version + i - 1)
  redis.call('HSET', record, 'vector', vector)
  redis.call('ZADD', log, stamp, id)
  announce(stamp, 'graph.embedded', record)
  given = given + 1
end

for i = 1, count do give(KEYS[3 + i], i) end
return done(whole(given))
