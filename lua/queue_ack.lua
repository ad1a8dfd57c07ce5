-- queue_ack: acknowledge tasks.
--
-- Acknowledgements that one client makes at the same moment share one call; they are independent.
--
-- INCLUDE time ledger mutation waiters task
-- KEYS claimed     zset    claimed tasks, by the end of their visibility
-- KEYS tasks       hash    the tasks by id
-- KEYS claims      hash    the claims by task id
-- KEYS dedup       hash    unfinished tasks by deduplication id
-- KEYS counts      hash    counters of the queue
-- KEYS followers   hash    waiters for outcomes, by task id
-- KEYS results...  string  the result of each task
-- ARGV keep_result_ms  int   lifetime of the results; 0: not stored
-- ARGV acks...         blob  id of the task, token of the claim, and the encoded result, of each task
--
-- RETURNS one line a task: 1, or 0 if the claim is lost
-- FAILS   CLOSED, STALE
local claimed, tasks, claims, dedup = KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local counts, followers, first_result = KEYS[8], KEYS[9], 9
local keep_result_ms, at = ARGV[6], 6
local replies, ended, uniques, is_ended = {}, {}, {}, {}
for i = 1, #KEYS - first_result do
  local id, token, outcome, result = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], KEYS[first_result + i]
  at = at + 3
  local held, _, _, unique = claim_of(claims, id)
  if held ~= token or is_ended[id] then
    replies[i] = '0'
  else
    replies[i], is_ended[id], ended[#ended + 1] = '1', true, id
    if unique ~= '' then uniques[#uniques + 1] = unique end
    if keep_result_ms ~= '0' then redis.call('SET', result, outcome, 'PX', keep_result_ms) end
  end
end
if #ended == 0 then return table.concat(replies, '\n') end

redis.call('ZREM', claimed, unpack(ended))
redis.call('HDEL', tasks, unpack(ended))
redis.call('HDEL', claims, unpack(ended))
if #uniques > 0 then redis.call('HDEL', dedup, unpack(uniques)) end
tally(counts, 'done', #ended)
if redis.call('HLEN', followers) > 0 then
  for _, id in ipairs(ended) do notify_followers(followers, id) end
end
return done(table.concat(replies, '\n'))
