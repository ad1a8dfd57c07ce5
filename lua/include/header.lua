-- header: the header line of a key/value record, `<version> <actor>[ <created>] <codec>`.
--
-- `sharedmem/redis/codec.py` reads the same grammar: a version of 16 digits, an actor without blanks, a time of at
-- most 16 digits (imported values may be older than 2001), a codec of small letters, a line feed, all within 256 bytes.
-- Every other string, also the empty one, is a foreign one.
local LONGEST_HEADER = 256

-- Version, time of creation, codec and start of the body, of a record's text or its first 256 bytes; nil when the
-- string is a foreign one.
local function header_of(text)
  local version, created, codec, body_at =
    string.match(string.sub(text, 1, LONGEST_HEADER), '^(%d+) %S+ ?(%d*) (%l+)\n()')
  if not version or #version ~= 16 or #created > 16 then return nil end
  return version, created == '' and version or created, codec, body_at
end
