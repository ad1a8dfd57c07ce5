-- pieces_change: set and remove contents of fields, and their copies in the durable tier.
--
-- Needs pieces.lua before it; the hash is the first own key.
local function set_part(key, field, text)
  redis.call('HSET', key, field, text)
  keep_element(1, 'hash', field, text)
end

local function unset_part(key, field)
  local removed = redis.call('HDEL', key, field)
  if removed == 1 then keep_element(1, 'hash', field) end
  return removed
end

-- Remove a field with its pieces; returns how many contents were removed.
local function remove(key, field)
  local pieces = string.match(redis.call('HGET', key, field) or '', PIECES)
  for i = 1, tonumber(pieces or '0') do unset_part(key, piece_of(field, i)) end
  return unset_part(key, field)
end

-- Set a field to a content, in pieces if it takes more than `most` bytes.
local function set_content(key, field, content, most)
  local before = tonumber(string.match(redis.call('HGET', key, field) or '', PIECES) or '0')
  local pieces = #content > most and math.ceil(#content / most) or 0
  for i = pieces + 1, before do unset_part(key, piece_of(field, i)) end
  for i = 1, pieces do set_part(key, piece_of(field, i), string.sub(content, (i - 1) * most + 1, i * most)) end
  set_part(key, field, pieces > 0 and '{"pieces":' .. pieces .. '}' or content)
end
