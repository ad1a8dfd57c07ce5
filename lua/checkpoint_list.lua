-- checkpoint_list: the names of a thread's checkpoints.
--
-- KEYS thread  hash  the thread
--
-- RETURNS `<ns>` LF `<id>` for each, in no order
-- FAILS   WRONGTYPE
local found = {}
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  local name = string.match(field, '^checkpoint\n(.*)$')
  if name then found[#found + 1] = name end
end
return found
