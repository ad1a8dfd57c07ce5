-- graph_close: begin to delete a group of a knowledge graph, or join those who are at it.
--
-- INCLUDE time ledger mutation graph
-- KEYS groups   hash  see include/graph.lua
-- KEYS edges    zset  edges by entity
-- KEYS claims   zset  claims by line
-- KEYS names    hash  ids by name
-- KEYS merges   hash  merges by id
-- KEYS changed  zset  guards by version
-- KEYS told     zset  register of the group, by which its records are found
-- ARGV group     text  as it stands in keys
-- ARGV token     text  of whoever deletes it, if nobody is at it
-- ARGV lease_ms  int   how long it may be silent
--
-- RETURNS `<token of those who are at it> <records that are left>`; `absent` when there is no such group
-- FAILS   CLOSED, STALE, WRONGTYPE
local groups, edges, claims, names = KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local merges, changed, told = KEYS[8], KEYS[9], KEYS[10]
local group, token, lease_ms = ARGV[6], ARGV[7], tonumber(ARGV[8])

local born, closed_until, holder = state_of_group(groups, group)
if not born and not closed_until and redis.call('EXISTS', told) == 0 then return done('absent') end
if closed_until and closed_until > microseconds() then token = holder end

-- First the group is closed: nobody sees it half deleted and adds to that.
local closed = 'closed ' .. whole(microseconds() + lease_ms * 1000) .. ' ' .. token
redis.call('HSET', groups, group, closed, '', whole(tick(1)))
redis.call('UNLINK', edges, claims, names, merges, changed)

local records = 0
for _, letter in ipairs({ 'e', 'f', 'n' }) do
  local behind = string.char(string.byte(letter) + 1)
  records = records + redis.call('ZLEXCOUNT', told, '[' .. letter, '(' .. behind)
end
return done(token .. ' ' .. whole(records))
