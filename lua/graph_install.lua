-- graph_install: move a staged graph of the graph module to its key, or delete an unfinished one.
--
-- KEYS turn   string  token of the caller that may do so
-- KEYS graph  any     the present graph, if there is one
-- KEYS ready  any     the staged graph; absent: no graph is staged
-- ARGV token  text    of the caller
--
-- RETURNS 1; 0 if another caller has the lease by now, or it was done before
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
