-- queue_claim: claim the first tasks, and wait if no task is ready.
--
-- INCLUDE time ledger mutation waiters queue task
-- KEYS ready    zset    ready tasks, by falling priority
-- KEYS delayed  zset    delayed tasks, by the end of their delay
-- KEYS claimed  zset    claimed tasks, by the end of their visibility
-- KEYS tasks    hash    the tasks by id
-- KEYS claims   hash    the claims by task id
-- KEYS paused   string  exists while the queue is paused
-- KEYS waiters  zset    waiting workers
-- ARGV count          int   most tasks
-- ARGV visibility_ms  int   visibility timeout
-- ARGV waiter         text  name of the waiter; '' if the caller does not wait
--
-- RETURNS for each task `<id> <receipt> <attempt> <bytes of error> <bytes of task>\n<error><task>`; `overdue` when
--         claims have ended and must be recovered first; `none` if there is no task, for the first waiter with
--         the microseconds after which to try again
-- FAILS   CLOSED, STALE
local ready, delayed, claimed, tasks = KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local claims, paused, waiters = KEYS[8], KEYS[9], KEYS[10]
local count, visibility_ms, waiter = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local MOST_BYTES, MOST_MOVED = 1048576, '100'
local now = microseconds()

local function wait_in_line(at)
  if waiter == '' then return 'none' end
  enlist(waiters, waiter)
  if not at or redis.call('ZRANGE', waiters, 0, 0)[1] ~= waiter then return 'none' end
  return 'none ' .. whole(math.max(at - now, 0))
end

if redis.call('EXISTS', paused) == 1 then return wait_in_line(nil) end
local by_now, moved = whole(now), 0
if redis.call('ZCOUNT', claimed, '-inf', by_now) > 0 then return 'overdue' end
if redis.call('ZCOUNT', delayed, '-inf', by_now) > 0 then
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', delayed, '-inf', by_now, 'LIMIT', '0', MOST_MOVED)) do
    redis.call('ZREM', delayed, id)
    local priority = facts_of(tasks, id)
    if priority then
      line_up(ready, id, priority)
      moved = moved + 1
    end
  end
end

local function hand_out(id, task, receipt)
  local _, attempts, _, unique, text = claim_of(claims, id)
  if not attempts then
    attempts, text = 0, ''
    unique = string.match(task, '^%S+ %d+ %S+ ([^\n]*)\n')
  end
  local attempt = attempts + 1
  redis.call('ZADD', claimed, whole(now + visibility_ms * 1000), id)
  redis.call('HSET', claims, id, receipt .. ' ' .. attempt .. ' ' .. actor .. ' ' .. unique .. '\n' .. text)
  return id .. ' ' .. receipt .. ' ' .. attempt .. ' ' .. #text .. ' ' .. #task .. '\n' .. text .. task
end

local taken, bytes, receipt = {}, 0, nil
while #taken < count and bytes < MOST_BYTES do
  local id = redis.call('ZPOPMIN', ready)[1]
  if not id then break end
  local task = redis.call('HGET', tasks, id)
  if task then
    receipt = receipt and receipt + 1 or tick(count)
    taken[#taken + 1] = hand_out(id, task, whole(receipt))
    bytes = bytes + #task
  end
end
if #taken == 0 then return wait_in_line(next_end(delayed, claimed)) end

-- No waiter was notified of tasks whose delay has just ended.
if moved > #taken then wake(waiters, moved - #taken, delayed, claimed) end
local left = waiter ~= '' and redis.call('ZREM', waiters, waiter) == 1
if left or visibility_ms * 1000 < LOOKED_AT_WITHIN then keep_watch(waiters, delayed, claimed) end
return done(table.concat(taken))
