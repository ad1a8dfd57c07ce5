-- note_index: write the missing vectors, or words, of several notes.
--
-- INCLUDE time ledger mutation packing
-- KEYS keys...    hash  the record of each; then log
-- ARGV field      text  `vector` or `terms`
-- ARGV values...  blob  for each: id, version it has, the new value
--
-- RETURNS the number of written records; the others have changed or were deleted
-- FAILS   CLOSED, STALE, WRONGTYPE
local count, log, field = #KEYS - 4, KEYS[#KEYS], ARGV[6]
local version, given = tick(count), 0
if count > 1 then packet = {} end

local function give(record, i)
  local id, expect, value = ARGV[4 + 3 * i], ARGV[5 + 3 * i], ARGV[6 + 3 * i]
  if redis.call('HGET', record, 'version') ~= expect then return end
  local stamp = whole(version + i - 1)
  redis.call('HSET', record, field, value)
  redis.call('ZADD', log, stamp, id)
  announce(stamp, field == 'vector' and 'note.embedded' or 'note.indexed', record)
  given = given + 1
end

for i = 1, count do give(KEYS[3 + i], i) end
return done(whole(given))
