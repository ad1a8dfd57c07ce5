-- packet: the changes of an entry of the change stream.
--
-- An entry with `op`, `key` and `by` is one change; its id is `<version>-0`. A packet has several changes of one call, in
-- the order of their versions: `by`, and `changes` with `<version> <operation> <bytes of the key> <key>` of each, a blank
-- between two; versions rise. Its id is `<version of the last>-0`. `sharedmem/redis/change_stream.py` reads the same grammar.

-- Cursor, operation, key and actor of each change. What another client has written is one change, whatever it has.
local function changes_of(entry)
  local id, fields, found, at, last = entry[1], entry[2], {}, 1, 0
  local text = fields[3] == 'changes' and fields[4] or ''
  while at <= #text do
    local version, operation, bytes, from = string.match(text, '^(%d+) (%S+) (%d+) ()', at)
    if not version or tonumber(version) <= last then break end
    last, at = tonumber(version), from + tonumber(bytes) + 1
    found[#found + 1] = { version .. '-0', operation, string.sub(text, from, at - 2), fields[2] }
  end
  if #found > 0 and at == #text + 2 and found[#found][1] == id then return found end
  local named = {}
  for i = 1, #fields, 2 do named[fields[i]] = fields[i + 1] end
  return { { id, named.op or '', named.key or '', named.by or '' } }
end
