-- memory_delete: delete several memories; their versions are kept for a while.
--
-- INCLUDE time ledger mutation packing header keeping memory memory_deletion
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
if count > 1 then packet = {} end

local function delete(record, history, turns, i)
  local from = 9 + (i - 1) * TERMS
  local expect = ARGV[from + 1]
  local was = read_whole(record)
  if not was[1] then return 'gone' end
  if expect ~= '' and was[1] ~= expect then return 'stale ' .. was[1] end
  local stamp = whole(version + i - 1)
  local one = { id = ARGV[from], author = ARGV[from + 2], thread = ARGV[from + 3], change_json = change_json, most = most,
    history_s = history_s }
  delete_memory(record, history, turns, log, digests, endings, authors, pending, was, one, stamp, i)
  deleted = deleted + 1
  return stamp
end

local verdicts = {}
for i = 1, count do verdicts[i] = delete(KEYS[3 + i], KEYS[3 + count + i], KEYS[3 + 2 * count + i], i) end
if deleted > 0 then redis.call('HINCRBY', stats, 'deleted', deleted) end
return done(table.concat(verdicts, '\n'))
