-- graph_close: begin to delete a group of a knowledge graph, or join its deletion.
--
-- INCLUDE time ledger mutation graph
-- KEYS groups   hash  see include/graph.lua
-- KEYS edges    zset  edges by entity
-- KEYS claims   zset  claims by line
-- KEYS names    hash  ids by name
-- KEYS merges   hash  merges by id
-- KEYS changed  zset  guards by version
-- KEYS told     zset  register of the group, by which its records are found
-- ARGV group     text  as used in keys
-- ARGV token     text  token of the deletion, if no deletion runs yet
-- ARGV lease_ms  int   length of its lease
--
-- RETURNS `<token of the deletion> <number of remaining records>`; `absent` if there is no such group
-- FAILS   CLOSED, STALE, WRONGTYPE
local groups, edges, claims, names = KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local merges, changed, told = KEYS[8], KEYS[9], KEYS[10]
local group, token, lease_ms = ARGV[6], ARGV[7], tonumber(ARGV[8])

local born, closed_until, holder = state_of_group(groups, group)
if not born and not closed_until and redis.call('EXISTS', told) == 0 then return done('absent') end
if closed_until and closed_until > microseconds() then token = holder end

-- First close the group: no client must read it half deleted, and add to it.
local closed = 'closed ' .. whole(microseconds() + lease_ms * 1000) .. ' ' .. token
redis.call('HSET', groups, group, closed, '', whole(tick(1)))
redis.call('UNLINK', edges, claims, names, merges, changed)

local records = 0
for _, letter in ipairs({ 'e', 'f', 'n' }) do
  local behind = string.char(string.byte(letter) + 1)
  records = records + redis.call('ZLEXCOUNT', told, '[' .. letter, '(' .. behind)
end
return done(token .. ' ' .. whole(records))
