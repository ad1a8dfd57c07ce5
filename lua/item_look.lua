-- item_look: read items of a namespace; begin their lifetimes anew if the reader does that.
--
-- INCLUDE time pieces item
-- KEYS items  hash  the items
-- ARGV renews     0|1   1: begin their lifetimes anew
-- ARGV fields...  text  their names
--
-- RETURNS empty if the namespace has no items; else for each: nil, or its content
-- FAILS   WRONGTYPE
local items, found, first_field = KEYS[1], {}, 2

local function look(field)
  local place, created, updated, ends, ttl_ms = header_at(items, field)
  if not place or is_over(ends) then return false end
  if ARGV[1] == '1' and ttl_ms ~= '0' then
    local text = redis.call('HGET', items, place)
    local header = table.concat({ created, updated, end_of(ttl_ms), ttl_ms }, ' ')
    redis.call('HSET', items, place, header .. string.sub(text, string.find(text, '\n', 1, true), -1))
  end
  return content_of(items, field)
end

if redis.call('EXISTS', items) == 1 then
  for i = first_field, #ARGV do found[#found + 1] = look(ARGV[i]) end
end
return found
