-- checkpoint_look: read checkpoints of a thread with the values of their channels and their writes.
--
-- INCLUDE pieces checkpoint
-- KEYS thread  hash  the thread
-- ARGV names...  text  the checkpoints: namespace LF id (empty: the newest)
--
-- RETURNS empty if there is no thread; else for each: nil, or namespace, id, its field `checkpoint`, the body, the
--         channels (field, content, ...), the writes (field, content, ...)
-- FAILS   WRONGTYPE
local key = KEYS[1]

local function contents(fields)
  local found = {}
  for _, field in ipairs(fields) do
    local content = content_of(key, field)
    if content then
      found[#found + 1] = field
      found[#found + 1] = content
    end
  end
  return found
end

local function look(ns, id)
  if id == '' then id = head_id(key, ns) end
  local info = id and info_of(key, ns, id)
  if not info then return false end
  local body = content_of(key, 'body\n' .. ns .. '\n' .. id) or ''
  return { ns, id, info.text, body, contents(info.blobs), contents(tasks_of(key, ns, id)) }
end

local found = {}
if redis.call('EXISTS', key) == 1 then
  for i = 1, #ARGV do found[i] = look(string.match(ARGV[i], '^(.*)\n(.*)$')) end
end
return found
