-- conversation_index: the names of the indexes of a namespace's conversations.
--
-- Needs mutation.lua before it. `$conversation.index:shared` has the conversations by the version of their last change
-- (`$conversation.tags:shared:...` likewise, of those with a tag), and `$conversation.endings:shared` has
-- `<name>\n<user>\n<agent>\n<app>` of conversations by the end of their lifetime in ms.
local service = string.sub(clock, 1, -6)
local base, names_at = service .. 'conversation', #service + 14
local updates, endings = service .. 'conversation.index:shared', service .. 'conversation.endings:shared'
local TAGS = { 'user', 'agent', 'app' }

local function tag_key(tag, value)
  return service .. 'conversation.tags:shared:' .. tag .. ':' .. value
end

local function score(key, number, member) redis.call('ZADD', key, number, member) end
