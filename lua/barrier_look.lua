-- barrier_look: how many wait at a barrier.
--
-- INCLUDE time
-- KEYS barrier  sortedset  who has come, by the end of its lease
--
-- RETURNS the number
-- FAILS   WRONGTYPE
local barrier = KEYS[1]

return redis.call('ZCOUNT', barrier, '(' .. whole(microseconds()), '+inf')
