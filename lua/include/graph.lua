-- graph: how a group of a knowledge graph lies at the server.
--
-- Needs time.lua before it. A field of `groups` is a group, and says with which version its first record was written, or
-- `closed <until> <token>` while it is being deleted; the field without a name says when the last one has gone. In
-- `names` lie `=<name>` and `><id of an entity that was merged>`, each with the id to which it leads. What lies in
-- `edges`, `claims` and `told` is spelled by `graph/backends/redis/layout.py`.
local OF_NAME, OF_MERGED, BY_OWNER, BETWEEN = '=', '>', 'a', '\31'
local MOST_MERGES, PART = 1000, 1000
local TYPES = { e = 'episode', n = 'entity', f = 'fact', x = 'name' }

-- What the durable tier calls a record, by the letter in its id. A name is not searched for: it stands for itself.
local function type_of(id)
  return TYPES[string.match(id, '/(%l)/')]
end

-- When the last group went; '0' for never, also where another client has written there.
local function last_gone(held)
  return string.match(held or '', '^%d+$') or '0'
end

-- Version of its first record, time until which it is closed, by whom, and when the last group went ('0' for never).
local function state_of_group(groups, group)
  local held = redis.call('HMGET', groups, group, '')
  local gone = last_gone(held[2])
  if not held[1] then return nil, nil, nil, gone end
  local closed_until, token = string.match(held[1], '^closed (%d+) (%S+)$')
  if closed_until then return nil, tonumber(closed_until), token, gone end
  return held[1], nil, nil, gone
end

-- What an entity was merged into, and that again, to the end.
local function end_of_merges(names, id)
  for _ = 1, MOST_MERGES do
    local into = redis.call('HGET', names, OF_MERGED .. id)
    if not into then break end
    id = into
  end
  return id
end

-- Lua can hand over only so many arguments at once.
local function in_parts(first, last, act)
  for from = first, last, PART do act(from, math.min(from + PART - 1, last)) end
end
