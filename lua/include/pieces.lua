-- pieces: contents of fields of a hash, which may be longer than one field may be.
--
-- A content that is too long is in pieces: the field holds `{"pieces":<n>}`, the pieces are in `<field>` CR and their
-- number.
local PIECES = '^{"pieces":(%d+)}$'

local function piece_of(field, i)
  return field .. '\r' .. i
end

-- The content of a field; nil without one.
local function content_of(key, field)
  local text = redis.call('HGET', key, field)
  if not text then return nil end
  local pieces = tonumber(string.match(text, PIECES))
  if not pieces then return text end
  local found = {}
  for i = 1, pieces do found[i] = redis.call('HGET', key, piece_of(field, i)) or '' end
  return table.concat(found)
end
