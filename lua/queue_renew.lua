-- queue_renew: renew the claim on a task.
--
-- It may be repeated: the claim then ends a little later.
--
-- INCLUDE time
-- KEYS claimed  zset  claimed tasks, by the end of their visibility
-- KEYS claims   hash  the claims by task id
-- ARGV id             text  id of the task
-- ARGV token          int   token of the claim
-- ARGV visibility_ms  int   visibility timeout from now on
--
-- RETURNS 1, or 0 if the claim is lost
local claimed, claims = KEYS[1], KEYS[2]
local id, token, visibility_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local claim = redis.call('HGET', claims, id)
if not claim or string.match(claim, '^%d+') ~= token then return 0 end
redis.call('ZADD', claimed, whole(microseconds() + visibility_ms * 1000), id)
return 1
