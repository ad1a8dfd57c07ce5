-- conversation_list: read a page of the conversations of a namespace, by their last change.
--
-- INCLUDE time conversation_log conversation_ids conversation
-- KEYS index    zset  the conversations, or those with one of the tags
-- KEYS example  hash  the head of any conversation of the namespace: only its name is used
-- ARGV order    text  `newest` or `oldest`
-- ARGV cursor   text  continue after this version; empty: from the beginning
-- ARGV limit    int   most conversations
-- ARGV scope    text  only conversations of this scope; empty: all
-- ARGV user    text  only conversations with this tag; empty: all
-- ARGV agent   text  likewise
-- ARGV app     text  likewise
--
-- RETURNS the cursor to continue from (empty: no more), the time in ms since 1970, then the name and the fields of each head, as HGETALL
-- FAILS   WRONGTYPE
local LOOKED_AT = 1000
local order, cursor, limit, scope = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local TAGS = { user = ARGV[5], agent = ARGV[6], app = ARGV[7] }
local base = base_of(KEYS[2])

local members
if order == 'newest' then
  local below = cursor == '' and '+inf' or '(' .. cursor
  members = redis.call('ZREVRANGEBYSCORE', KEYS[1], below, '-inf', 'WITHSCORES', 'LIMIT', '0', LOOKED_AT)
else
  local above = cursor == '' and '-inf' or '(' .. cursor
  members = redis.call('ZRANGEBYSCORE', KEYS[1], above, '+inf', 'WITHSCORES', 'LIMIT', '0', LOOKED_AT)
end

local function matches(name, head)
  if not head or (scope ~= '' and string.sub(name, 1, #scope + 1) ~= scope .. ':') then return false end
  for tag, value in pairs(TAGS) do
    if value ~= '' and head[tag] ~= value then return false end
  end
  return true
end

local found, count, at = { '', whole(math.floor(microseconds() / 1000)) }, 0, 1
while at <= #members and count < limit do
  local name = members[at]
  local head = head_of(base .. ':' .. name)
  if matches(name, head) then
    count = count + 1
    found[#found + 1] = name
    local fields = pairs_of(head.key)
    -- Of a field that comes twice, the later one counts.
    for _, field in ipairs({ 'revision', head.revision, 'updated', head.updated, 'length', whole(head.length) }) do
      fields[#fields + 1] = field
    end
    found[#found + 1] = fields
  end
  at = at + 2
end
if at <= #members or #members == 2 * LOOKED_AT then found[1] = members[at - 1] end
return found
