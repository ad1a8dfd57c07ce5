-- task: the format of a task, and its outcomes.
--
-- A task is `<priority> <most attempts> <put by> <deduplication id>\n<payload>` until it is done. A claim, from the
-- first claim on, is `<receipt or 0> <attempt> <worker> <deduplication id>\n<error of the attempt before>`.
-- Needs waiters.lua before it.

local COUNTS_LIVE_MS = '604800000'

-- Priority, most attempts, and deduplication id of a task, or nil if it does not exist.
local function facts_of(tasks, id)
  local task = redis.call('HGET', tasks, id)
  if not task then return nil end
  local priority, most, unique = string.match(task, '^(%S+) (%d+) %S+ ([^\n]*)\n')
  return priority, tonumber(most), unique
end

-- Token ('0' if no worker has it), attempt, worker, deduplication id and error of a claim, or nil.
local function claim_of(claims, id)
  return string.match(redis.call('HGET', claims, id) or '', '^(%d+) (%d+) (%S+) ([^\n]*)\n(.*)$')
end

-- No worker has the task any more; the attempt and error stay for its next worker.
local function unclaim(claims, id, attempt, worker, unique, text)
  redis.call('HSET', claims, id, '0 ' .. attempt .. ' ' .. worker .. ' ' .. unique .. '\n' .. text)
end

-- Counters expire after a week without a change.
local function tally(counts, name, number)
  redis.call('HINCRBY', counts, name, number or 1)
  redis.call('PEXPIRE', counts, COUNTS_LIVE_MS)
end

-- Notify the waiters for the outcome of a task.
local function notify_followers(followers, id)
  local names = redis.call('HGET', followers, id)
  if not names then return end
  for name in string.gmatch(names, '%S+') do call_waiter(name) end
  redis.call('HDEL', followers, id)
end

-- Move a task to the dead letters, and announce that on the change stream.
local function bury(dead, id, queue, counts, followers)
  local version = whole(tick(1))
  redis.call('ZADD', dead, version, id)
  tally(counts, 'dead')
  notify_followers(followers, id)
  announce(version, 'queue.dead', queue)
end
