-- change_ack: acknowledge changes in a consumer group.
--
-- KEYS changes  stream  the namespace's change stream
-- KEYS split    stream  the group's own stream (see include/group.lua)
-- KEYS places   hash    ids in it by cursor
-- ARGV group       text  name of the group
-- ARGV cursors...  text  the changes
--
-- RETURNS how many of them were pending
-- FAILS   WRONGTYPE
local changes, split, places, group = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local acknowledged = 0

local function acknowledge(stream, id)
  local count = redis.call('XACK', stream, group, id)
  acknowledged = acknowledged + count
  return count == 1
end

for i = 2, #ARGV do
  local cursor = ARGV[i]
  local id = redis.call('HGET', places, cursor)
  if id then
    redis.call('HDEL', places, cursor)
    acknowledge(split, id)
  elseif not acknowledge(split, cursor) then
    -- The last change of a packet has the cursor of the packet, which no consumer acknowledges.
    local entry = redis.call('XRANGE', changes, cursor, cursor)[1]
    if not entry or entry[2][3] ~= 'changes' then acknowledge(changes, cursor) end
  end
end
return acknowledged
