-- memory_use: count how often memories were returned and when last, and drop deleted ones.
--
-- INCLUDE time ledger mutation
-- KEYS used        zset  ids by how often they were returned
-- KEYS touched     zset  ids by the time of the last use, in milliseconds
-- KEYS records...  hash  the memories
-- ARGV start       int   place in `touched`, oldest first, of those to check next time
-- ARGV most        int   number of these
-- ARGV terms...    text  for each memory: id, how often it was returned; 0: only check whether it exists
--
-- RETURNS the number of existing ones among those with 0, and in lines the ids to check next time
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
