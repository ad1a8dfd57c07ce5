-- memory_deletion: delete a memory; its versions are kept for a while.
--
-- Needs time.lua, ledger.lua, mutation.lua, keeping and memory.lua before it.

-- The parts of a record that its deletion needs; the first is its version, absent without a record.
local function read_whole(record)
  return redis.call('HMGET', record, 'version', 'turn', 'change', 'body', 'digest', 'facts')
end

local function keep_last(history, was, stamp, one)
  redis.call('LPUSH', history, version_json(was[1], was[2], was[3], was[4]), version_json(stamp, was[2], one.change_json, was[4]))
  redis.call('LTRIM', history, 0, one.most - 1)
  redis.call('PEXPIRE', history, whole(one.history_s * 1000))
end

local function log_deletion(log, stamp, id)
  redis.call('ZADD', log, stamp, id)
end

local function forget_waiting(pending, id)
  redis.call('ZREM', pending, id)
end

local function count_turn_gone(authors, author)
  if author ~= '' and redis.call('HINCRBY', authors, author, -1) <= 0 then redis.call('HDEL', authors, author) end
end

-- `one` has id, author (or empty), thread, change_json, most and history_s; `was` is what read_whole returned, and `i`
-- the place of the memory among the targets. Its keys, and the keys that all memories share.
local function delete_memory(record, history, turns, log, digests, endings, authors, pending, was, one, stamp, i)
  -- A record that another client has damaged gives no past version.
  if was[2] and was[3] and was[4] then keep_last(history, was, stamp, one) end
  for n = 2, 6 do was[n] = was[n] or '' end
  redis.call('DEL', record)
  leave_turns(turns, was[2], turn_members(one.id, was[6]))
  forget_digest(digests, was[5], one.id)
  log_deletion(log, stamp, one.id)
  remember_gone(endings, one.id .. ' ' .. was[5] .. ' ' .. was[2] .. ' ' .. one.thread)
  forget_waiting(pending, one.id)
  count_turn_gone(authors, one.author)
  keep_gone(i, 'memory', stamp)
  announce(stamp, 'memory.deleted', record)
end
