-- conversation_log: the log of a plain conversation, whose head may be behind it (see conversation.lua).
--
-- Needs time.lua before it.

-- `<prefix>:{<namespace>}:$conversation` of a head's key, and the conversation's name.
local function base_of(key)
  return string.match(key, '^(.-}:%$conversation):(.*)$')
end

local function range(key, first, last) return redis.call('LRANGE', key, whole(first), whole(last)) end

local function is_behind(plain) return plain == '3' or plain == '4' end

-- Revision and length of a conversation whose head is behind its log.
local function progress_of(log)
  local newest = redis.call('LINDEX', log, '-1')
  return newest and string.sub(newest, 1, 16) or '0', redis.call('LLEN', log)
end
