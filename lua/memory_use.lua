-- memory_use: add up how often memories were answered and when last, and leave out those that are gone.
--
-- INCLUDE time ledger mutation
-- KEYS used        zset  ids by how often they were answered
-- KEYS touched     zset  ids by when that was last, in milliseconds
-- KEYS records...  hash  the memories
-- ARGV start       int   place in `touched`, oldest first, of those to look at next time
-- ARGV most        int   how many these are
-- ARGV terms...    text  for each memory: id, how often it was answered; 0 only to see whether it is there
--
-- RETURNS how many of those with 0 are there, and in lines the ids to look at next time
-- FAILS   CLOSED, STALE, WRONGTYPE
local used, touched, start, most = KEYS[4], KEYS[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local now_ms, there = whole(math.floor(microseconds() / 1000)), 0
for i = 6, #KEYS do
  local id, times = ARGV[2 * i - 4], ARGV[2 * i - 3]
  if redis.call('EXISTS', KEYS[i]) == 0 then
    redis.call('ZREM', used, id)
    redis.call('ZREM', touched, id)
  elseif times == '0' then
    there = there + 1
  else
    redis.call('ZINCRBY', used, times, id)
    redis.call('ZADD', touched, now_ms, id)
  end
end
local following = redis.call('ZRANGE', touched, whole(start), whole(start + most - 1))
return done(table.concat({ whole(there), unpack(following) }, '\n'))
