-- checkpoint_write: store the writes of a task beside a checkpoint, which may follow later.
--
-- INCLUDE time ledger mutation header keeping changed pieces pieces_change checkpoint
-- KEYS thread  hash  the thread
-- ARGV ttl_ms     int   new expiry of the thread in milliseconds; 0: unchanged
-- ARGV most       int   bytes that one field may take
-- ARGV name       text  the checkpoint: namespace LF id
-- ARGV replaces   0|1   1: instead of writes that are there; 0: those stay, as a whole
-- ARGV pairs...   blob  field, content, ...
--
-- RETURNS `<version> `, version 0 if nothing was changed
-- FAILS   CLOSED, STALE, WRONGTYPE
local key, ttl_ms, most, replaces, first_pair = KEYS[4], ARGV[6], tonumber(ARGV[7]), ARGV[9] == '1', 10
local ns, id = string.match(ARGV[8], '^(.*)\n(.*)$')
if is_cold(1) then return 'COLD' end
local tasks, is_changed = tasks_of(key, ns, id), false
local known = {}
for _, field in ipairs(tasks) do known[field] = true end
for i = first_pair, #ARGV, 2 do
  local field = ARGV[i]
  if replaces or not known[field] then
    set_content(key, field, ARGV[i + 1], most)
    is_changed = true
    if not known[field] then tasks[#tasks + 1] = field end
  end
end
if not is_changed then return done('0 ') end
set_part(key, 'tasks\n' .. ns .. '\n' .. id, table.concat(tasks, '\r'))
return changed('hset', key, ttl_ms, '')
