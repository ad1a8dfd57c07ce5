-- graph_install: put a graph of the graph module in its place when it is ready, or clear away one that never was.
--
-- KEYS turn   string  whose turn it is to do so
-- KEYS graph  any     the graph in its place, if there is one
-- KEYS ready  any     the one that comes there; absent: none does
-- ARGV token  text    of the caller
--
-- RETURNS 1; 0 when it is somebody else's turn by now, or was done before
local turn, graph, ready, token = KEYS[1], KEYS[2], KEYS[3], ARGV[1]

if redis.call('GET', turn) ~= token then return 0 end
redis.call('DEL', turn)
if redis.call('EXISTS', ready) == 0 then
  redis.call('DEL', graph)
else
  redis.call('PERSIST', ready)
  redis.call('RENAME', ready, graph)
end
return 1
