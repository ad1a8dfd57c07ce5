-- cache_drop: delete some answers.
--
-- INCLUDE time ledger mutation packing cache
-- KEYS keys...  any   the answers; after them log, endings and gone (see include/cache.lua)
-- ARGV ids...  text  their ids
--
-- RETURNS number of deleted answers
-- FAILS   CLOSED, STALE
local count = #KEYS - 6
local log, endings, gone = KEYS[#KEYS - 2], KEYS[#KEYS - 1], KEYS[#KEYS]
local first, dropped = tick(count), 0
if count > 1 then packet = {} end
for i = 1, count do
  local version = whole(first + i - 1)
  if redis.call('DEL', KEYS[3 + i]) == 1 then
    dropped = dropped + 1
    announce(version, 'cache.dropped', KEYS[3 + i])
  end
  redis.call('ZREM', endings, ARGV[5 + i])
  redis.call('ZADD', log, version, ARGV[5 + i])
  remember_gone(gone, ARGV[5 + i])
end
for i = #KEYS - 2, #KEYS do outlive(KEYS[i], 0) end
return done(whole(dropped))
