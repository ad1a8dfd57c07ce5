-- graph: the format of a knowledge graph group at the server.
--
-- Needs time.lua before it. A field of `groups` is a group, with the version of its first record, or `closed <until>
-- <token>` while it is being deleted; the field without a name has the time of the last deletion of a group. `names`
-- contains `=<name>` and `><id of a merged entity>`, each with the id to which it refers. The members of `edges`,
-- `claims` and `told` are defined in `graph/backends/redis_layout.py`.
local OF_NAME, OF_MERGED, BY_OWNER, BETWEEN = '=', '>', 'a', '\31'
local MOST_MERGES, PART = 1000, 1000
local TYPES = { e = 'episode', n = 'entity', f = 'fact', x = 'name' }

-- The type of a record in the durable tier, by the letter in its id. Names are not searchable.
local function type_of(id)
  return TYPES[string.match(id, '/(%l)/')]
end

-- The time of the last deletion of a group; '0': never, also if another client has written there.
local function last_gone(held)
  return string.match(held or '', '^%d+$') or '0'
end

-- Version of its first record, time until which it is closed, by which token, and the time of the last deletion of a
-- group ('0': never).
local function state_of_group(groups, group)
  local held = redis.call('HMGET', groups, group, '')
  local gone = last_gone(held[2])
  if not held[1] then return nil, nil, nil, gone end
  local closed_until, token = string.match(held[1], '^closed (%d+) (%S+)$')
  if closed_until then return nil, tonumber(closed_until), token, gone end
  return held[1], nil, nil, gone
end

-- The final entity that an entity was merged into.
local function end_of_merges(names, id)
  for _ = 1, MOST_MERGES do
    local into = redis.call('HGET', names, OF_MERGED .. id)
    if not into then break end
    id = into
  end
  return id
end

-- Lua can pass only so many arguments at once.
local function in_parts(first, last, act)
  for from = first, last, PART do act(from, math.min(from + PART - 1, last)) end
end
