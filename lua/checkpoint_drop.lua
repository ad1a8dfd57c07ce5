-- checkpoint_drop: delete checkpoints of a thread, their writes, and the channels that no other checkpoint has.
--
-- A checkpoint whose channel is stored as changes needs its ancestors up to the one that has the channel's value: what
-- stays, stays with them.
--
-- INCLUDE time ledger mutation header keeping changed pieces pieces_change checkpoint
-- KEYS thread  hash  the thread
-- ARGV mode     text  `old`: all but the newest of each namespace; `runs`: the checkpoints of some runs
-- ARGV runs...  text  the ids of these runs
--
-- RETURNS `<version> <number of deleted checkpoints>`, version 0 if none was deleted
-- FAILS   CLOSED, STALE, WRONGTYPE
local key, mode = KEYS[4], ARGV[6]
if is_cold(1) then return 'COLD' end
local runs = {}
for i = 7, #ARGV do runs[ARGV[i]] = true end

local found, by_name, fields = {}, {}, redis.call('HKEYS', key)
for _, field in ipairs(fields) do
  local ns, id = string.match(field, '^checkpoint\n([^\n]*)\n([^\n]*)$')
  if ns then
    local one = { field = field, ns = ns, id = id, info = info_of(key, ns, id) }
    found[#found + 1], by_name[field] = one, one
  end
end

-- The ancestors from which the channels of a checkpoint follow.
local function keep_history(one)
  local missing = {}
  for _, channel in ipairs(one.info.deltas) do missing[channel] = true end
  while one and next(missing) do
    one.stays = true
    for _, blob in ipairs(one.info.blobs) do
      local channel = string.match(blob, '^blob\n[^\n]*\n[^\n]*\n(.*)$')
      if missing[channel] and redis.call('HEXISTS', key, blob) == 1 then missing[channel] = nil end
    end
    one = by_name['checkpoint\n' .. one.ns .. '\n' .. one.info.parent]
  end
end

for _, one in ipairs(found) do
  if mode == 'runs' then
    one.stays = not runs[one.info.run]
  elseif one.id == head_id(key, one.ns) then
    one.stays = true
    keep_history(one)
  end
end

local removed, used, heads = 0, {}, {}
for _, one in ipairs(found) do
  if one.stays then
    for _, blob in ipairs(one.info.blobs) do used[blob] = true end
    if not heads[one.ns] or heads[one.ns] < one.id then heads[one.ns] = one.id end
  else
    for _, field in ipairs(tasks_of(key, one.ns, one.id)) do remove(key, field) end
    remove(key, 'tasks\n' .. one.ns .. '\n' .. one.id)
    remove(key, 'body\n' .. one.ns .. '\n' .. one.id)
    removed = removed + remove(key, one.field)
  end
end
if removed == 0 then return done('0 0') end
for _, field in ipairs(fields) do
  if string.find(field, '^blob\n') and not string.find(field, '\r', 1, true) and not used[field] then
    remove(key, field)
  end
  local ns = string.match(field, '^head\n(.*)$')
  if ns and not heads[ns] then
    remove(key, field)
  elseif ns and heads[ns] ~= head_id(key, ns) then
    set_part(key, field, heads[ns])
  end
end
return changed('hdel', key, '0', whole(removed))
