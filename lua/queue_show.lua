-- queue_show: return the first tasks of a state without claiming them.
--
-- KEYS line    zset  tasks in one state
-- KEYS tasks   hash  the tasks by id
-- KEYS claims  hash  the claims by task id
-- ARGV count  int  most tasks
--
-- RETURNS {id, score, task, claim} of each, one after the other
local line, tasks, claims = KEYS[1], KEYS[2], KEYS[3]
local count, MOST_BYTES = tonumber(ARGV[1]), 4194304
local shown, bytes = {}, 0
local ranked = redis.call('ZRANGE', line, 0, count - 1, 'WITHSCORES')
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
