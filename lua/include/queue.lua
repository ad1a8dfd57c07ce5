-- queue: the ordered sets of tasks and waiting workers.
--
-- The first waiting worker keeps watch: only it has the time of the next delay or claim that ends. When it leaves, its
-- successor must be notified of an end that comes before its own next poll.
-- Needs waiters.lua before it.

local LOOKED_AT_WITHIN = 20000000
local MOST_GONE_AT_ONCE = 16

-- The score of the first of a sorted set, and the member; nil if it is empty.
local function soonest(line)
  local first = redis.call('ZRANGE', line, 0, 0, 'WITHSCORES')
  return tonumber(first[2]), first[1]
end

-- The end of the next delay or claim, or nil.
local function next_end(delayed, claimed)
  local due, ending = soonest(delayed), soonest(claimed)
  if due and ending then return math.min(due, ending) end
  return due or ending
end

-- Notify the first waiter if a delay or claim ends before its own next poll.
local function keep_watch(waiters, delayed, claimed)
  local at = next_end(delayed, claimed)
  if at and at < microseconds() + LOOKED_AT_WITHIN then call_first(waiters) end
end

-- Remove as many waiters as there are tasks, and notify them; skip those whose hub is gone.
local function wake(waiters, count, delayed, claimed)
  local called, gone = 0, 0
  while called < count and gone < MOST_GONE_AT_ONCE do
    local first = redis.call('ZPOPMIN', waiters)[1]
    if not first then break end
    if call_waiter(first) then called = called + 1 else gone = gone + 1 end
  end
  if called + gone > 0 then keep_watch(waiters, delayed, claimed) end
end

-- Delay a task until a time; notify the first waiter if it is the next one.
local function postpone(delayed, id, due, waiters)
  redis.call('ZADD', delayed, whole(due), id)
  local _, first = soonest(delayed)
  if first == id then call_first(waiters) end
end

-- Equal priorities are ordered by id, which is the order in which they were put.
local function line_up(ready, id, priority)
  redis.call('ZADD', ready, whole(-tonumber(priority)), id)
end
