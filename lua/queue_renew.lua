-- queue_renew: keep a claimed task for longer.
--
-- It may be repeated: the claim then ends a little later.
--
-- INCLUDE time
-- KEYS claimed  zset  tasks that somebody has, by the end of their visibility
-- KEYS claims   hash  who has what, and what became of it before
-- ARGV id             text  which task
-- ARGV token          int   the receipt
-- ARGV visibility_ms  int   how long from now on nobody else gets it
--
-- RETURNS 1, or 0 when the claim is lost
local claimed, claims = KEYS[1], KEYS[2]
local id, token, visibility_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local claim = redis.call('HGET', claims, id)
if not claim or string.match(claim, '^%d+') ~= token then return 0 end
redis.call('ZADD', claimed, whole(microseconds() + visibility_ms * 1000), id)
return 1
