-- item: the items of a namespace, which is a hash.
--
-- Needs time.lua and pieces.lua before it. A content is `<created> <updated> <ends> <ttl>\n<payload>`: microseconds of its
-- first and last change, milliseconds at which it ends (0: never), and its lifetime.
local HEADER = '^(%d+) (%d+) (%d+) (%d+)\n'

-- The field with the header of an item, and its numbers; nil without an item.
local function header_at(key, field)
  local text = redis.call('HGET', key, field)
  if text and string.find(text, PIECES) then
    field = piece_of(field, 1)
    text = redis.call('HGET', key, field)
  end
  local created, updated, ends, ttl_ms = string.match(text or '', HEADER)
  if not created then return nil end
  return field, created, updated, tonumber(ends), ttl_ms
end

local function is_over(ends)
  return ends > 0 and ends * 1000 <= microseconds()
end

local function end_of(ttl_ms)
  if ttl_ms == '0' then return '0' end
  return whole(math.floor(microseconds() / 1000) + tonumber(ttl_ms))
end
