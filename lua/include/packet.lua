-- packet: the changes of an entry of the change stream.
--
-- An entry with `op`, `key` and `by` is one change; its id is `<version>-0`. A packet has several changes of one call, in
-- the order of their versions, which rise: `by`, and `changes` with the version, operation and key of each, a line feed
-- between two (no key has control characters). Its id is `<version of the last>-0`. `sharedmem/redis/change_stream.py`
-- reads the same grammar.

-- Cursor, operation, key and actor of each change. What another client has written is one change, whatever it has.
local function changes_of(entry)
  local id, fields, found, length, last = entry[1], entry[2], {}, 0, 0
  local text = fields[3] == 'changes' and fields[4] .. '\n' or ''
  for version, operation, key in string.gmatch(text, '(%d+)\n([^\n]*)\n([^\n]*)\n') do
    if tonumber(version) <= last then break end
    last, length = tonumber(version), length + #version + #operation + #key + 3
    found[#found + 1] = { version .. '-0', operation, key, fields[2] }
  end
  if #found > 0 and length == #text and found[#found][1] == id then return found end
  local named = {}
  for i = 1, #fields, 2 do named[fields[i]] = fields[i + 1] end
  return { { id, named.op or '', named.key or '', named.by or '' } }
end
