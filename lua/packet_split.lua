-- packet_split: move the changes of delivered packets to the stream of their group.
--
-- From there each is delivered, acknowledged and buried alone.
--
-- INCLUDE time packet group
-- KEYS changes  stream  the namespace's change stream
-- KEYS split    stream  the group's own stream (see include/group.lua)
-- KEYS places   hash    ids in it by cursor
-- ARGV group   text  name of the group
-- ARGV ids...  text  entries of the change stream, in order; some may be single changes, which keep their place then
--
-- RETURNS the number of moved changes; entries that the group no longer has to acknowledge are left out
-- FAILS   WRONGTYPE
local changes, split, places, group = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
redis.call('XLEN', split)
redis.call('HLEN', places)

-- Delete what is acknowledged: what is before the oldest pending entry, or without one, what was delivered.
local function clean(split)
  local pending = redis.pcall('XPENDING', split, group)
  if pending.err then return end -- a cleared namespace has no such group before its next consumer
  if pending[1] > 0 then return redis.call('XTRIM', split, 'MINID', pending[2]) end
  local delivered
  for _, facts in ipairs(redis.call('XINFO', 'GROUPS', split)) do
    local named = {}
    for i = 1, #facts, 2 do named[facts[i]] = facts[i + 1] end
    if named.name == group then delivered = named['last-delivered-id'] end
  end
  local version, sequence = string.match(delivered, '^(%d+)%-(%d+)$')
  return redis.call('XTRIM', split, 'MINID', version .. '-' .. whole(sequence + 1))
end
clean(split)

local moved = 0
for i = 2, #ARGV do
  local entry = redis.call('XRANGE', changes, ARGV[i], ARGV[i])[1]
  if entry and redis.call('XACK', changes, group, ARGV[i]) == 1 then
    for _, change in ipairs(changes_of(entry)) do
      pass_on(split, places, change)
      moved = moved + 1
    end
  end
end
return moved
