-- memory_write: write several memories, each new or as a new version; delete one that was merged into another.
--
-- INCLUDE time ledger mutation packing header keeping memory memory_deletion
-- KEYS keys...    any   the record of each, the past versions of each, the turns of the thread of each; then log,
--                       digests, endings, authors, pending, stats and place (see include/memory.lua)
-- ARGV seen       text  the newest change that the caller has read; empty if nothing depends on it
-- ARGV whole      int   1: all of them or none
-- ARGV most       int   number of past versions to keep
-- ARGV history_s  int   how long to keep them after the memory has expired
-- ARGV writes...  any   for each: id, version it has (0: it is new), change, JSON of the change, digest, former digest,
--                       id of the memory whose digest this may take (`*`: leave the digest where it is), milliseconds
--                       to live (-1: for ever; empty: unchanged), turn index (empty: the next one), thread, facts
--                       before and after the turn index, author or empty, body, `1` if it waits for its vector,
--                       base64 of its vector for the durable tier, whether to delete earlier fields, number of further
--                       fields, and these with their values; with the change `deleted` the memory is deleted instead:
--                       only id, version, JSON of the change, thread and author count then
--
-- RETURNS `<waiting> <verdict>...`, in lines: number of memories that wait for their vectors; of each `ok <version>
--         <turn>`, `dup <id>` (another has its digest), `here <version> <turn> <digest>` (it is not new), or `stale
--         <version>` (it has another version; 0: deleted). `BEHIND <newest> <id>...`: these have changed, nothing was
--         written; `BEHIND` alone: too many have. COLD when some memories may be in the durable tier alone
-- FAILS   CLOSED, STALE, WRONGTYPE
local SHARED, MOST_TOLD = 7, 200
local seen, whole_only, most, history_s = ARGV[6], ARGV[7] == '1', tonumber(ARGV[8]), tonumber(ARGV[9])
local count = (#KEYS - 3 - SHARED) / 3
local last_own = #KEYS - SHARED
local log, digests, endings = KEYS[last_own + 1], KEYS[last_own + 2], KEYS[last_own + 3]
local authors, pending, stats, place = KEYS[last_own + 4], KEYS[last_own + 5], KEYS[last_own + 6], KEYS[last_own + 7]

-- The changes since the caller's read; nil without changes.
local function changed_since()
  local newest = redis.call('ZRANGE', log, -1, -1, 'WITHSCORES')[2]
  if not newest or tonumber(newest) <= tonumber(seen) then return nil end
  local ids = redis.call('ZRANGEBYSCORE', log, '(' .. seen, '+inf', 'LIMIT', 0, MOST_TOLD + 1)
  if #ids > MOST_TOLD then return 'BEHIND' end
  return 'BEHIND ' .. whole(tonumber(newest)) .. ' ' .. table.concat(ids, ' ')
end

if lacks_records() then return 'COLD' end
local behind = seen ~= '' and changed_since()
if behind then return behind end

local pool = redis.call('EXISTS', place) == 0
local version = tick(count)
if count > 1 then packet = {} end

-- Keys that all memories share are read once and written once, after the last write.
local holders, tops, turned, taken, logged, counted, spoken = {}, {}, {}, {}, {}, {}, {}

-- The terms of a write, and where the next one begins.
local NAMES = { 'id', 'expect', 'change', 'change_json', 'digest', 'former', 'over', 'ttl_ms', 'turn', 'thread', 'head', 'tail',
  'author', 'body', 'waits', 'vector', 'afresh', 'fields' }
local function read_terms(from)
  local one = { first = from + #NAMES }
  for i = 1, #NAMES do one[NAMES[i]] = ARGV[from + i - 1] end
  one.last = one.first + 2 * tonumber(one.fields) - 1
  return one, one.last + 1
end

-- Whether any of these keys exist: for new memories they mostly do not.
local function any_there(from)
  return redis.call('EXISTS', KEYS[from], unpack(KEYS, from + 1, from + count - 1)) > 0
end

-- The memories with the digests of these writes.
local function read_holders(writes)
  local digests_of = {}
  for i, one in ipairs(writes) do digests_of[i] = one.digest end
  for i, id in ipairs(redis.call('HMGET', digests, unpack(digests_of))) do holders[digests_of[i]] = id end
end

local function next_turn(turns)
  if not tops[turns] then
    local top = redis.call('ZRANGE', turns, -1, -1, 'WITHSCORES')[2]
    tops[turns] = top and tonumber(top) or -1
  end
  return whole(tops[turns] + 1)
end

-- The reason why a write is not done, or nil.
local function objection(record, one, some_there)
  if some_there or one.expect ~= '0' then
    local held = redis.call('HMGET', record, 'version', 'turn', 'digest')
    if one.expect == '0' and held[1] then return 'here ' .. held[1] .. ' ' .. (held[2] or '') .. ' ' .. (held[3] or '') end
    if one.expect ~= '0' and held[1] ~= one.expect then return 'stale ' .. (held[1] or '0') end
  end
  if one.expect ~= '0' or one.over == '*' then return nil end
  local other = holders[one.digest]
  if other and other ~= one.over and other ~= one.id then return 'dup ' .. other end
  return nil
end

-- The replaced version becomes a past version, unless another client has deleted a part of it.
local function keep_past(record, history)
  local was = redis.call('HMGET', record, 'version', 'turn', 'change', 'body')
  if not (was[1] and was[2] and was[3] and was[4]) then return end
  redis.call('LPUSH', history, version_json(was[1], was[2], was[3], was[4]))
  redis.call('LTRIM', history, 0, most - 1)
end

-- Delete obsolete fields together with all others: a search index treats each command as a change.
local function store(record, one, stamp)
  local left = one.ttl_ms == '' and redis.call('PTTL', record) or tonumber(one.ttl_ms)
  if one.afresh == '1' then redis.call('DEL', record) end
  local fields = { 'version', stamp, 'turn', one.turn, 'digest', one.digest, 'change', one.change_json, 'body', one.body,
    'facts', one.head .. one.turn .. one.tail, unpack(ARGV, one.first, one.last) }
  if pool then fields[#fields + 1], fields[#fields + 2] = 'pool', '1' end
  redis.call('HSET', record, unpack(fields))
  if left > 0 then
    redis.call('PEXPIRE', record, left)
  elseif one.expect ~= '0' then
    redis.call('PERSIST', record)
  end
  return left
end

-- The history is kept for a while after its memory.
local function note_ending(history, one, left, has_past)
  if left > 0 then
    local ending = one.id .. ' ' .. one.digest .. ' ' .. one.turn .. ' ' .. one.thread
    redis.call('ZADD', endings, whole(now_ms() + left), ending)
    if has_past then redis.call('PEXPIRE', history, whole(left + history_s * 1000)) end
  elseif has_past then
    redis.call('PERSIST', history)
  end
end

local function note_turn(turns, one, facts_before)
  if facts_before then redis.call('ZREM', turns, turn_members(one.id, facts_before)) end
  if tops[turns] then tops[turns] = math.max(tops[turns], tonumber(one.turn)) end
  local members = turned[turns] or {}
  local facts = one.author == '' and 'null' or one.head .. one.turn .. one.tail
  members[#members + 1], members[#members + 2] = one.turn, one.id .. ' ' .. facts
  turned[turns] = members
  if one.expect == '0' and one.author ~= '' then spoken[one.author] = (spoken[one.author] or 0) + 1 end
end

local function note_digest(one)
  if one.former ~= '' and one.former ~= one.digest then
    if holders[one.former] == one.id then holders[one.former] = nil end
    forget_digest(digests, one.former, one.id)
  end
  local may_take = one.expect == '0' and one.over ~= '*'
  if may_take or not holders[one.digest] then
    holders[one.digest] = one.id
    taken[#taken + 1], taken[#taken + 2] = one.digest, one.id
  end
end

local function note_waiting(one)
  if one.waits == '1' then
    redis.call('ZADD', pending, 'NX', 0, one.id)
  elseif one.expect ~= '0' then
    redis.call('ZREM', pending, one.id)
  end
end

local function document(one, stamp, left)
  local vector = one.vector ~= '' and ',"embedding":"' .. one.vector .. '"' or ''
  local expires = left > 0 and ',"expires_ms":' .. whole(now_ms() + left) or ''
  return '{"id":"' .. one.id .. '","digest":"' .. one.digest .. '"' .. vector .. expires
    .. ',' .. string.sub(version_json(stamp, one.turn, one.change_json, one.body), 2)
end

local function write(record, history, turns, one, i, some_past)
  local stamp = whole(version + i - 1)
  local facts_before = one.expect ~= '0' and redis.call('HGET', record, 'facts')
  if facts_before then keep_past(record, history) end
  if one.turn == '' then one.turn = next_turn(turns) end
  local left = store(record, one, stamp)
  note_ending(history, one, left, some_past or facts_before)
  note_turn(turns, one, facts_before)
  note_digest(one)
  note_waiting(one)
  logged[#logged + 1], logged[#logged + 2] = stamp, one.id
  counted[one.change] = (counted[one.change] or 0) + 1
  if is_kept(i) then
    local expires = left > 0 and whole(now_ms() + left)
    keep_head(i, 'memory', stamp, '0', document(one, stamp, left), expires)
  end
  announce(stamp, 'memory.' .. one.change, record)
  return 'ok ' .. stamp .. ' ' .. one.turn
end

-- Delete a memory that was merged into another one of these writes.
local function delete(record, history, turns, one, i)
  local stamp = whole(version + i - 1)
  one.most, one.history_s = most, history_s
  delete_memory(record, history, turns, log, digests, endings, authors, pending, read_whole(record), one, stamp, i)
  counted.deleted = (counted.deleted or 0) + 1
  return 'ok ' .. stamp .. ' 0'
end

local function write_shared()
  if #logged > 0 then redis.call('ZADD', log, unpack(logged)) end
  if #taken > 0 then redis.call('HSET', digests, unpack(taken)) end
  for turns, members in pairs(turned) do redis.call('ZADD', turns, unpack(members)) end
  for author, times in pairs(spoken) do redis.call('HINCRBY', authors, author, times) end
  for change, times in pairs(counted) do redis.call('HINCRBY', stats, change, times) end
end

local writes, verdicts, from, refused = {}, {}, 10, false
for i = 1, count do writes[i], from = read_terms(from) end
read_holders(writes)
local some_there, some_past = any_there(4), any_there(4 + count)
for i = 1, whole_only and count or 0 do
  local why_not = objection(KEYS[3 + i], writes[i], some_there)
  -- Without an objection of its own it is not written either if another one has one.
  verdicts[i], refused = why_not or 'stale 0', refused or why_not ~= nil
end
for i = 1, refused and 0 or count do
  local record, history, turns, one = KEYS[3 + i], KEYS[3 + count + i], KEYS[3 + 2 * count + i], writes[i]
  verdicts[i] = objection(record, one, some_there) or one.change == 'deleted' and delete(record, history, turns, one, i)
    or write(record, history, turns, one, i, some_past)
end
write_shared()
return done(whole(redis.call('ZCARD', pending)) .. '\n' .. table.concat(verdicts, '\n'))
