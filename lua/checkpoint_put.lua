-- checkpoint_put: store checkpoints of a thread with their parts; the newest id of a namespace becomes its head.
--
-- INCLUDE time ledger mutation header keeping changed pieces pieces_change checkpoint
-- KEYS thread  hash  the thread
-- ARGV ttl_ms    int   new expiry of the thread in milliseconds; 0: unchanged
-- ARGV most      int   bytes that one field may take
-- ARGV parent    text  the checkpoint that must be the newest of the root namespace, or must have become this one; empty:
--                      any
-- ARGV names     text  the checkpoints between CR: namespace LF id
-- ARGV pairs...  blob  field, content, ...
--
-- RETURNS `<version> `; `C <id of the newest checkpoint>` if another one is newest
-- FAILS   CLOSED, STALE, WRONGTYPE
local key, ttl_ms, most, parent, first_pair = KEYS[4], ARGV[6], tonumber(ARGV[7]), ARGV[8], 10
local names = split(ARGV[9])
if is_cold(1) then return 'COLD' end
if parent ~= '' then
  local newest = head_id(key, '')
  if newest and newest ~= parent and '\n' .. newest ~= names[1] then return done('C ' .. newest) end
end
for i = first_pair, #ARGV, 2 do set_content(key, ARGV[i], ARGV[i + 1], most) end
for _, name in ipairs(names) do
  local ns, id = string.match(name, '^(.*)\n(.*)$')
  local newest = head_id(key, ns)
  if not newest or newest < id then set_part(key, 'head\n' .. ns, id) end
end
return changed('hset', key, ttl_ms, '')
