-- conversation_ids: the positions of entries by the ids that callers gave.
--
-- Needs time.lua before it.
--
-- In the hash of a segment whose name ends with `s}`, the field of a UUID is its last 14 bytes, and the value has its first
-- two before the position in hexadecimal digits: the server then allocates 24 bytes for both instead of 32. UUIDs that end
-- alike share the field, a blank between them. Segments of earlier versions have the whole id as the field.
local SHORT, UUID_MARK, UUID_FIELD_BYTES = 115, 0, 14

local function place_of(key, id) return redis.call('HGET', key, id) end

-- The field of an id in the hash of a segment; of a UUID also the bytes that precede its position in the value.
local function field_of(segment, id)
  if string.byte(segment, -2) ~= SHORT then return id end
  if string.byte(id) == UUID_MARK then return string.sub(id, 4), string.sub(id, 2, 3) end
  -- A text must not be taken for the end of a UUID.
  return #id == UUID_FIELD_BYTES and '\0' .. id or id
end

-- The position after the first bytes of a UUID in a value, and where it begins and ends there; nil if it is not there.
local function listed_at(value, first_bytes)
  local at = 1
  while true do
    local digits = string.match(value, '^%x+', at + 2)
    if not digits then return nil end
    if string.sub(value, at, at + 1) == first_bytes then return tonumber(digits, 16), at, at + 1 + #digits end
    at = at + 3 + #digits
  end
end

-- The position of an id in the hash of a segment; nil if it is not there. Then whether its field is.
local function place_of_id(ids, segment, id)
  local field, first_bytes = field_of(segment, id)
  local value = place_of(ids, field)
  if not value then return nil, false end
  if first_bytes then return (listed_at(value, first_bytes)), true end
  return tonumber(value), true
end

-- Add the field of an id and its new value to a flat table. `values`: those of this change by their fields. `is_shared`:
-- whether the hash may have the field already.
local function add_place(places, values, ids, segment, id, position, is_shared)
  local field, first_bytes = field_of(segment, id)
  local value = first_bytes and first_bytes .. string.format('%x', position) or whole(position)
  if first_bytes then
    local others = values[field] or is_shared and place_of(ids, field)
    if others then value = others .. ' ' .. value end
    values[field] = value
  end
  local count = #places
  places[count + 1], places[count + 2] = field, value
end
