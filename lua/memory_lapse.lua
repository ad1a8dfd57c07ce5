-- memory_lapse: delete the remains of expired memories, and log entries that are old enough.
--
-- INCLUDE time ledger mutation packing memory
-- KEYS keys...     any   for each ending its record, then for each the turns of its thread; then log, digests, endings
-- ARGV endings...  text  members of `endings` whose time has passed (see include/memory.lua)
--
-- RETURNS number of deleted memories
-- FAILS   CLOSED, STALE
local count = (#KEYS - 6) / 2
local log, digests, endings = KEYS[#KEYS - 2], KEYS[#KEYS - 1], KEYS[#KEYS]
local version, lapsed = tick(count), 0
if count > 1 then packet = {} end

local function leave_thread(turns, id, turn)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', turns, turn, turn)) do
    if string.sub(member, 1, #id + 1) == id .. ' ' then leave_turns(turns, turn, member) end
  end
end

local function lapse(record, turns, ending, i)
  local due = redis.call('ZSCORE', endings, ending)
  if not due or tonumber(due) > now_ms() then return end
  redis.call('ZREM', endings, ending)
  lapsed = lapsed + 1
  local announced, id, digest, turn = string.match(ending, '^( ?)(%S+) (%S+) (%d+) ')
  if redis.call('EXISTS', record) == 1 then return end
  if announced == ' ' then
    redis.call('ZREM', log, id)
    return
  end
  local stamp = whole(version + i - 1)
  forget_digest(digests, digest, id)
  leave_thread(turns, id, turn)
  redis.call('ZADD', log, stamp, id)
  remember_gone(endings, ending)
  announce(stamp, 'memory.expired', record)
end

for i = 1, count do lapse(KEYS[3 + i], KEYS[3 + count + i], ARGV[5 + i], i) end
return done(whole(lapsed))
