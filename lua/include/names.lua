-- names: the index of the names in use, a sorted set of `<kind>:<scope>:<identifier>`, all with score 0.
--
-- The step that creates a lock, leader, semaphore, read/write lock, barrier, rate limit or queue adds its name. An ended
-- one is removed later: by a caller that lists the index (names_drop), and a few at a time whenever a new name is added,
-- so that names which are used once do not collect here. The member `$complete` is there if the index lacks no name: see
-- tick in mutation.lua, namespace_join, namespace_cleared, and `NameIndex` for data of earlier versions.
--
-- An index that cannot be written (a user whose rights are older than it, a key of another type) stops no caller.

local REMOVED_ONE_TIME_IN, LOOKED_AT = 8, 16
local QUEUE = '^queue(:.*)$'

local function is_there(key)
  local count = redis.pcall('EXISTS', key)
  return type(count) ~= 'number' or count > 0
end

-- Whether the thing with an indexed name exists; `head` is the beginning of the service keys of the namespace. A queue
-- exists while it has tasks, has recent counters, or is paused.
local function is_in_use(head, name)
  local queue = string.match(name, QUEUE)
  if not queue then return name == '$complete' or is_there(head .. name) end
  return is_there(head .. 'queue.tasks' .. queue)
    or is_there(head .. 'queue.counts' .. queue)
    or is_there(head .. 'queue.paused' .. queue)
end

local function unlist_names(names, head, some)
  for _, name in ipairs(some) do
    if not is_in_use(head, name) then redis.call('ZREM', names, name) end
  end
end

local function list_name(names, head, name)
  if redis.pcall('ZADD', names, '0', name) ~= 1 or microseconds() % REMOVED_ONE_TIME_IN > 0 then return end
  local first = math.floor(microseconds() / REMOVED_ONE_TIME_IN) % redis.call('ZCARD', names)
  local some = redis.pcall('ZRANGE', names, whole(first), whole(first + LOOKED_AT - 1))
  if not some.err then unlist_names(names, head, some) end
end
