-- memory: the format of memories at the server, and the common steps of their changes.
--
-- Needs time.lua and mutation.lua before it. Of each memory there are its record (hash), its past versions (list,
-- newest first) and the turns of its thread (zset by turn index: `<id> <facts>`, and `<id> null` of a memory without an
-- author, which gains nothing by its neighbours; earlier builds wrote its facts too); `memory/serialization.py` defines them. A member of `endings` is `<id> <digest> <turn> <thread>` by the expiry of the memory, in
-- milliseconds, and with a blank before it by the end of its log entry after a deletion.

local GONE_FOR_MS = 86400000

-- One version as JSON, from its parts.
local function version_json(version, turn, change, body)
  return '{"version":' .. version .. ',"turn_index":' .. turn .. ',"change":' .. change .. ',"item":' .. body .. '}'
end

local function now_ms()
  return math.floor(microseconds() / 1000)
end

-- The members that a memory with these facts may have among the turns.
local function turn_members(id, facts)
  return id .. ' null', id .. ' ' .. facts
end

-- The last turn index of a thread stays stored when its last turn is deleted.
local function leave_turns(turns, turn, ...)
  redis.call('ZREM', turns, ...)
  if redis.call('EXISTS', turns) == 0 or redis.call('ZCOUNT', turns, turn, '+inf') == 0 then
    redis.call('ZADD', turns, turn, '- null')
  end
end

-- Readers of the log can see deletions for a while.
local function remember_gone(endings, ending)
  redis.call('ZADD', endings, whole(now_ms() + GONE_FOR_MS), ' ' .. ending)
end

-- A digest no longer refers to a memory.
local function forget_digest(digests, digest, id)
  if redis.call('HGET', digests, digest) == id then redis.call('HDEL', digests, digest) end
end
