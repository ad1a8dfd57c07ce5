-- queue_show: return tasks of a state in their order, without claiming them.
--
-- KEYS line    zset  tasks in one state
-- KEYS tasks   hash  the tasks by id
-- KEYS claims  hash  the claims by task id
-- ARGV count        int   most tasks
-- ARGV after_score  text  score of the task behind which to begin; '': at the first
-- ARGV after_id     text  its id; it may have left the line meanwhile
--
-- RETURNS {id, score, task, claim} of each, one after the other
local line, tasks, claims = KEYS[1], KEYS[2], KEYS[3]
local count, after_score, after_id, MOST_BYTES = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], 4194304

-- The rank of the first task behind a place, by halving: it need not be in the line any more.
local function rank_behind(score, id)
  local low, high = 0, redis.call('ZCARD', line)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local found = redis.call('ZRANGE', line, middle, middle, 'WITHSCORES')
    local here = tonumber(found[2])
    if here < score or (here == score and found[1] <= id) then low = middle + 1 else high = middle end
  end
  return low
end

local first = after_score and rank_behind(after_score, after_id) or 0
local shown, bytes = {}, 0
local ranked = redis.call('ZRANGE', line, first, first + count - 1, 'WITHSCORES')
for i = 1, #ranked, 2 do
  local task = redis.call('HGET', tasks, ranked[i])
  if task and bytes < MOST_BYTES then
    local n = #shown
    shown[n + 1], shown[n + 2], shown[n + 3] = ranked[i], ranked[i + 1], task
    shown[n + 4] = redis.call('HGET', claims, ranked[i]) or ''
    bytes = bytes + #task
  end
end
return shown
