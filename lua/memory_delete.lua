-- memory_delete: delete several memories; their versions are kept for a while.
--
-- INCLUDE time ledger mutation header keeping memory
-- KEYS keys...    any   as memory_write
-- ARGV most       int   number of past versions to keep
-- ARGV history_s  int   how long to keep them
-- ARGV change_json blob JSON of the change
-- ARGV deletes... any   for each: id, version it has (empty: any), author or empty, thread
--
-- RETURNS a line for each: its version, `stale <version>`, or `gone`; COLD when some memories may be in the durable
--         tier alone
-- FAILS   CLOSED, STALE, WRONGTYPE
local SHARED, TERMS = 7, 4
local most, history_s, change_json = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local count = (#KEYS - 3 - SHARED) / 3
local last_own = #KEYS - SHARED
local log, digests, endings = KEYS[last_own + 1], KEYS[last_own + 2], KEYS[last_own + 3]
local authors, pending, stats = KEYS[last_own + 4], KEYS[last_own + 5], KEYS[last_own + 6]
if lacks_records() then return 'COLD' end
local version, deleted = tick(count), 0

local function keep_past(history, was, stamp)
  redis.call('LPUSH', history, version_json(was[1], was[2], was[3], was[4]), version_json(stamp, was[2], change_json, was[4]))
  redis.call('LTRIM', history, 0, most - 1)
  redis.call('PEXPIRE', history, whole(history_s * 1000))
end

local function delete(record, history, turns, i)
  local from = 9 + (i - 1) * TERMS
  local id, expect, author, thread = ARGV[from], ARGV[from + 1], ARGV[from + 2], ARGV[from + 3]
  local was = redis.call('HMGET', record, 'version', 'turn', 'change', 'body', 'digest', 'facts')
  if not was[1] then return 'gone' end
  if expect ~= '' and was[1] ~= expect then return 'stale ' .. was[1] end
  local stamp = whole(version + i - 1)
  -- A record that another client has damaged gives no past version.
  if was[2] and was[3] and was[4] then keep_past(history, was, stamp) end
  for n = 2, 6 do was[n] = was[n] or '' end
  redis.call('DEL', record)
  leave_turns(turns, id .. ' ' .. was[6], was[2])
  forget_digest(digests, was[5], id)
  redis.call('ZADD', log, stamp, id)
  remember_gone(endings, id .. ' ' .. was[5] .. ' ' .. was[2] .. ' ' .. thread)
  redis.call('ZREM', pending, id)
  if author ~= '' and redis.call('HINCRBY', authors, author, -1) <= 0 then redis.call('HDEL', authors, author) end
  keep_gone(i, 'memory', stamp)
  announce(stamp, 'memory.deleted', record)
  deleted = deleted + 1
  return stamp
end

local verdicts = {}
for i = 1, count do verdicts[i] = delete(KEYS[3 + i], KEYS[3 + count + i], KEYS[3 + 2 * count + i], i) end
if deleted > 0 then redis.call('HINCRBY', stats, 'deleted', deleted) end
return done(table.concat(verdicts, '\n'))
