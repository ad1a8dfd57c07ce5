-- checkpoint: the fields of a thread of checkpoints, which is a hash.
--
-- Needs pieces.lua before it. Names are parts between line feeds.
--
-- FIELD head <ns>                      id of the newest checkpoint of a namespace
-- FIELD checkpoint <ns> <id>           between CR: its parent and its run (empty: none), how many channels are stored as
--                                      changes (their values follow from the writes since the last stored one), these
--                                      channels, the fields of all its channels
-- FIELD body <ns> <id>                 the checkpoint without its channels, and its metadata
-- FIELD tasks <ns> <id>                between CR: the fields of its writes
-- FIELD writes <ns> <id> <task> [<n>]  the writes of a task; a special one by its number
-- FIELD blob <ns> <version> <channel>  the value of a channel, once a version
--
-- Contents are as in pieces.lua.
local function split(text)
  local parts = {}
  for part in string.gmatch((text or '') .. '\r', '(.-)\r') do parts[#parts + 1] = part end
  return parts
end

-- What a `checkpoint` field says; nil without one.
local function info_of(key, ns, id)
  local text = redis.call('HGET', key, 'checkpoint\n' .. ns .. '\n' .. id)
  if not text then return nil end
  local parts = split(text)
  local info = { ['text'] = text, parent = parts[1], run = parts[2], deltas = {}, blobs = {} }
  local last_delta = 3 + (tonumber(parts[3]) or 0)
  for i = 4, #parts do table.insert(i <= last_delta and info.deltas or info.blobs, parts[i]) end
  return info
end

-- The id in a head; nil without one.
local function head_id(key, ns)
  return redis.call('HGET', key, 'head\n' .. ns) or nil
end

local function tasks_of(key, ns, id)
  local text = redis.call('HGET', key, 'tasks\n' .. ns .. '\n' .. id)
  return text and split(text) or {}
end
