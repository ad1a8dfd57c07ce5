-- records_gather: find out whether Redis has all memories and graphs of a namespace, or restore them.
--
-- INCLUDE time joined
-- KEYS kept      hash  kinds of durable keys, and marks: of namespace_join, `$gathered` (all are here), `$gathering`
--                      (lease of the restore), `$gathering.steps` (see kept_restore)
-- KEYS anew...   any   counters that are built again during the restore
-- ARGV token     text  token of the caller
-- ARGV lease_ms  int   length of the restore lease
-- ARGV step      int   number of the step that the caller has made, from 1; 0: it asks for the lease
-- ARGV done      int   1: that step was the last one, it has restored all of them
--
-- RETURNS `whole` all are here; `load` the caller must restore them; `noted` the step counts; `wait <ms>` another hub
--         restores them; `lost` Redis may lack more than these records, join first; `overtaken` another hub has taken
--         over, or Redis has lost earlier steps
local kept, token, lease_ms = KEYS[1], ARGV[1], tonumber(ARGV[2])
local step, finished = tonumber(ARGV[3]), ARGV[4] == '1'
local now = math.floor(microseconds() / 1000)
if not is_joined(kept) then return 'lost' end
if redis.call('HEXISTS', kept, '$gathered') == 1 then return 'whole' end

local holder, ends = string.match(redis.call('HGET', kept, '$gathering') or '', '^(%S+) (%d+)$')
if step > 0 then
  local before = holder == token and tonumber(redis.call('HGET', kept, '$gathering.steps') or '-1')
  if before ~= step - 1 and before ~= step then return 'overtaken' end
  if not finished then
    redis.call('HSET', kept, '$gathering', token .. ' ' .. whole(now + lease_ms), '$gathering.steps', whole(step))
    return 'noted'
  end
  redis.call('HDEL', kept, '$gathering', '$gathering.steps')
  redis.call('HSET', kept, '$gathered', 'whole')
  return 'whole'
end
if holder and holder ~= token and tonumber(ends) > now then return 'wait ' .. whole(tonumber(ends) - now) end
redis.call('HSET', kept, '$gathering', token .. ' ' .. whole(now + lease_ms), '$gathering.steps', '0')
for i = 2, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 'load'
