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

-- `keys` has record, history, turns, log, digests, endings, authors and pending; `was` is what read_whole returned;
-- `one` has id, author (or empty), thread, change_json, most and history_s; `i` is its place among the targets.
local function delete_memory(keys, was, one, stamp, i)
  -- A record that another client has damaged gives no past version.
  if was[2] and was[3] and was[4] then keep_last(keys.history, was, stamp, one) end
  for n = 2, 6 do was[n] = was[n] or '' end
  redis.call('DEL', keys.record)
  leave_turns(keys.turns, one.id .. ' ' .. was[6], was[2])
  forget_digest(keys.digests, was[5], one.id)
  redis.call('ZADD', keys.log, stamp, one.id)
  remember_gone(keys.endings, one.id .. ' ' .. was[5] .. ' ' .. was[2] .. ' ' .. one.thread)
  redis.call('ZREM', keys.pending, one.id)
  if one.author ~= '' and redis.call('HINCRBY', keys.authors, one.author, -1) <= 0 then
    redis.call('HDEL', keys.authors, one.author)
  end
  keep_gone(i, 'memory', stamp)
  announce(stamp, 'memory.deleted', keys.record)
end
