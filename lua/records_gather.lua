-- records_gather: find out whether Redis has all memories and graphs of a namespace, or bring them back.
--
-- INCLUDE time joined
-- KEYS kept      hash  what lasts by argument, and marks: of namespace_join, `$gathered` (all are here), and
--                      `$gathering` (who brings them back, and until when nobody else does)
-- KEYS anew...   any   what is counted anew while they come back
-- ARGV token     text  of whoever asks
-- ARGV lease_ms  int   how long it may be silent while it brings them back
-- ARGV done      int   1: it has brought them all
--
-- RETURNS `whole` all are here; `load` the caller has to bring them back; `wait <ms>` somebody else does; `lost` Redis
--         may lack more than these records, join first; `overtaken` somebody else has taken over
local kept, token, lease_ms, finished = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
local now = math.floor(microseconds() / 1000)
if not is_joined(kept) then return 'lost' end
if redis.call('HEXISTS', kept, '$gathered') == 1 then return 'whole' end

local holder, ends = string.match(redis.call('HGET', kept, '$gathering') or '', '^(%S+) (%d+)$')
if finished then
  if holder ~= token then return 'overtaken' end
  redis.call('HDEL', kept, '$gathering')
  redis.call('HSET', kept, '$gathered', 'whole')
  return 'whole'
end
if holder and holder ~= token and tonumber(ends) > now then return 'wait ' .. whole(tonumber(ends) - now) end
redis.call('HSET', kept, '$gathering', token .. ' ' .. whole(now + lease_ms))
for i = 2, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 'load'
