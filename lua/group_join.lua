-- group_join: create a consumer group of the change stream, unless it exists.
--
-- INCLUDE packet group
-- KEYS changes  stream  the namespace's change stream
-- KEYS split    stream  the group's own stream (see include/group.lua)
-- KEYS places   hash    ids in it by cursor
-- ARGV group  text  name of the group
-- ARGV start  text  the cursor after which it begins; $: now
--
-- RETURNS 1 if it was created
-- FAILS   WRONGTYPE
local changes, split, places, group, start = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]
local following = start ~= '$' and redis.call('XRANGE', changes, '(' .. start, '+', 'COUNT', '1')[1]
local after, rest = start, {}
if following then
  -- A cursor within a packet: the group begins behind the packet, and gets the changes after the cursor alone.
  local passed = tonumber(string.match(start, '^%d+'))
  local found = changes_of(following)
  if tonumber(string.match(found[1][1], '^%d+')) <= passed then
    after = following[1]
    for _, change in ipairs(found) do
      if tonumber(string.match(change[1], '^%d+')) > passed then rest[#rest + 1] = change end
    end
  end
end

local function create(stream, from)
  local created = redis.pcall('XGROUP', 'CREATE', stream, group, from, 'MKSTREAM')
  if not created.err then return 1 end
  return string.find(tostring(created.err), 'BUSYGROUP', 1, true) and 0 or created
end

local own = create(split, '0')
if type(own) == 'table' then return own end
local created = create(changes, after)
if created ~= 1 then return created end
for _, change in ipairs(rest) do pass_on(split, places, change) end
return 1
