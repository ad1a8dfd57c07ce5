-- memory: how memories lie at the server, and what every change of some of them leaves.
--
-- Needs time.lua and mutation.lua before it. Of each memory there are its record (hash), its past versions (list,
-- newest first) and the turns of its thread (zset of `<id> <facts>` by turn index); `memory/serialization.py`
-- knows what stands in them. A member of `endings` is `<id> <digest> <turn> <thread>` by when the memory expires, in
-- milliseconds, and with a blank before it by when the log may forget that it is gone.

local GONE_FOR_MS = 86400000

-- One version as JSON, of its parts.
local function version_json(version, turn, change, body)
  return '{"version":' .. version .. ',"turn_index":' .. turn .. ',"change":' .. change .. ',"item":' .. body .. '}'
end

local function now_ms()
  return math.floor(microseconds() / 1000)
end

-- Where the turns of a thread have got to stays known when the last one goes.
local function leave_turns(turns, member, turn)
  redis.call('ZREM', turns, member)
  if redis.call('EXISTS', turns) == 0 or redis.call('ZCOUNT', turns, turn, '+inf') == 0 then
    redis.call('ZADD', turns, turn, '- null')
  end
end

-- Who follows the log hears for a while of what is gone.
local function remember_gone(endings, ending)
  redis.call('ZADD', endings, whole(now_ms() + GONE_FOR_MS), ' ' .. ending)
end

-- A digest no longer leads to a memory.
local function forget_digest(digests, digest, id)
  if redis.call('HGET', digests, digest) == id then redis.call('HDEL', digests, digest) end
end
