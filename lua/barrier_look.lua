-- barrier_look: the number of parties that wait at a barrier.
--
-- INCLUDE time
-- KEYS barrier  sortedset  arrived parties, by the end of its lease
--
-- RETURNS the number
-- FAILS   WRONGTYPE
local barrier = KEYS[1]

return redis.call('ZCOUNT', barrier, '(' .. whole(microseconds()), '+inf')
