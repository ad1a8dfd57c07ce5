-- graph_forget: delete some records of a closed group, and open it when no record is left.
--
-- INCLUDE time ledger mutation header keeping graph
-- KEYS keys...     any   the records; then log, groups and told (see include/graph.lua)
-- ARGV group       text  as used in keys
-- ARGV token       text  token of the deletion
-- ARGV lease_ms    int   length of its lease from now on
-- ARGV key         text  key to announce as deleted
-- ARGV members...  text  members to remove from the register, including these records
--
-- RETURNS `more <records deleted>`, `done <records deleted>` if no record is left, `over` if other callers have
--         finished, or begun again. COLD when some of it may be in the durable tier alone
-- FAILS   CLOSED, STALE, WRONGTYPE
local SHARED, FIRST = 3, 10
local group, token, lease_ms, spoken = ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9]
local count = #KEYS - 3 - SHARED
local own = #KEYS - SHARED
local log, groups, told = KEYS[own + 1], KEYS[own + 2], KEYS[own + 3]

if lacks_records() then return 'COLD' end
local _, closed_until, holder = state_of_group(groups, group)
if not closed_until or holder ~= token then return done('over') end

local version = tick(1)
local stamp, deleted, unlogged = whole(version), 0, {}
for i = 1, count do
  unlogged[i] = string.match(KEYS[3 + i], '}:(.*)$')
  if redis.call('DEL', KEYS[3 + i]) == 1 then
    local type = type_of(unlogged[i])
    if type ~= 'name' then deleted = deleted + 1 end
    keep_gone(i, type, stamp)
  end
end
in_parts(1, count, function(from, to) redis.call('ZREM', log, unpack(unlogged, from, to)) end)
in_parts(FIRST, #ARGV, function(from, to) redis.call('ZREM', told, unpack(ARGV, from, to)) end)

if redis.call('EXISTS', told) == 1 then
  redis.call('HSET', groups, group, 'closed ' .. whole(microseconds() + lease_ms * 1000) .. ' ' .. token)
  return done('more ' .. whole(deleted))
end
redis.call('HDEL', groups, group)
redis.call('HSET', groups, '', stamp)
announce(stamp, 'graph.deleted', spoken)
return done('done ' .. whole(deleted))
