-- presence_look: the present actors.
--
-- INCLUDE time
-- KEYS presence  sortedset  actors by the end of their presence
-- KEYS facts     hash       by actor: `<since> <last seen> <about>`, times in microseconds
--
-- RETURNS {number of lapsed actors, then for each present one: actor, microseconds left, facts}
-- FAILS   WRONGTYPE
local presence, facts = KEYS[1], KEYS[2]

local now = microseconds()
local found = {redis.call('ZCOUNT', presence, '-inf', whole(now))}
local here = redis.call('ZRANGEBYSCORE', presence, '(' .. whole(now), '+inf', 'WITHSCORES')
for i = 1, #here, 2 do
  found[#found + 1] = here[i]
  found[#found + 1] = whole(tonumber(here[i + 1]) - now)
  found[#found + 1] = redis.call('HGET', facts, here[i]) or ''
end
return found
