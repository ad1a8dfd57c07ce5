-- group: the changes of packets in a consumer group.
--
-- A group acknowledges entries, and each change must be acknowledged alone. So the changes of a packet that it reads go to
-- a stream of its own, from which they are delivered like others. There they are entries as in the change stream, as long
-- as they come in order. Otherwise an entry begins with the `cursor`, and `places` has its id. Needs packet.lua before it.

local function note_place(places, cursor, id) redis.call('HSET', places, cursor, id) end

-- Add a change to the stream of the group.
local function pass_on(split, places, change)
  local cursor, operation, key, by = unpack(change)
  local added = redis.pcall('XADD', split, cursor, 'op', operation, 'key', key, 'by', by)
  if type(added) == 'table' then
    -- A consumer that read an earlier packet was slower: versions are far above the time in milliseconds, so this is next.
    local id = redis.call('XADD', split, '*', 'cursor', cursor, 'op', operation, 'key', key, 'by', by)
    note_place(places, cursor, id)
  end
end
