-- queue: the lines in which tasks and workers stand.
--
-- The first worker in line keeps watch: it alone knows when the next delay or claim ends. Whoever takes it out of
-- line looks whether its successor has to be told of an end that comes before that one looks again by itself.
-- Needs waiters.lua before it.

local LOOKED_AT_WITHIN = 20000000
local MOST_GONE_AT_ONCE = 16

-- The score of the first of a sorted set, and the member; nil when it is empty.
local function soonest(line)
  local first = redis.call('ZRANGE', line, 0, 0, 'WITHSCORES')
  return tonumber(first[2]), first[1]
end

-- When the next delay or claim ends, or nil.
local function next_end(delayed, claimed)
  local due, ending = soonest(delayed), soonest(claimed)
  if due and ending then return math.min(due, ending) end
  return due or ending
end

-- Let the first in line look again if something ends before it would by itself.
local function keep_watch(waiters, delayed, claimed)
  local at = next_end(delayed, claimed)
  if at and at < microseconds() + LOOKED_AT_WITHIN then call_first(waiters) end
end

-- Take as many out of line as there are tasks for, and call them; those whose hub is gone are passed over.
local function wake(waiters, count, delayed, claimed)
  local called, gone = 0, 0
  while called < count and gone < MOST_GONE_AT_ONCE do
    local first = redis.call('ZPOPMIN', waiters)[1]
    if not first then break end
    if call_waiter(first) then called = called + 1 else gone = gone + 1 end
  end
  if called + gone > 0 then keep_watch(waiters, delayed, claimed) end
end

-- Let a task wait until a time; the first in line has to know of it when it is the next.
local function postpone(delayed, id, due, waiters)
  redis.call('ZADD', delayed, whole(due), id)
  local _, first = soonest(delayed)
  if first == id then call_first(waiters) end
end

-- Equal priorities go by id, which is the order in which they were put.
local function line_up(ready, id, priority)
  redis.call('ZADD', ready, whole(-tonumber(priority)), id)
end
