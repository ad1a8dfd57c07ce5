-- records_gather: find out whether Redis has all memories and graphs of a namespace, or restore them.
--
-- INCLUDE time joined
-- KEYS kept      hash  kinds of durable keys, and marks: of namespace_join, `$gathered` (all are here), and
--                      `$gathering` (lease of the restore)
-- KEYS anew...   any   counters that are built again during the restore
-- ARGV token     text  token of the caller
-- ARGV lease_ms  int   length of the restore lease
-- ARGV done      int   1: it has restored all of them
--
-- RETURNS `whole` all are here; `load` the caller must restore them; `wait <ms>` another hub does; `lost` Redis
--         may lack more than these records, join first; `overtaken` another hub has taken over
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
