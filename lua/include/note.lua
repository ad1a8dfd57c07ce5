-- note: the service keys of an app's notes.
--
-- Needs time.lua before it. An app has the ids of its notes (zset, all at zero), its users (hash: `<notes>
-- <version of the newest change of one that is active or pending>`) and its chains (hash: `<notes> <highest fencing
-- token under which one of them was changed>`). A field is deleted with its last note, so that neither is longer than
-- the ids.
local SEARCHED = { active = true, conflict_pending = true }

-- The second number of a field of users or chains; zero if it does not exist.
local function newest_of(key, field)
  local held = redis.call('HGET', key, field)
  return tonumber(held and string.match(held, ' (%d+)$') or '0')
end

-- So many notes more, or fewer, and a newer number, if it is one.
local function shift(key, field, more, number)
  local count, newest = string.match(redis.call('HGET', key, field) or '', '^(%d+) (%d+)$')
  count = tonumber(count or '0') + more
  if count < 1 then return redis.call('HDEL', key, field) end
  redis.call('HSET', key, field, whole(count) .. ' ' .. whole(math.max(tonumber(newest or '0'), number or 0)))
end

-- A record is named `<app>/<id>`; no app has a slash in its name.
local function named_by(key)
  local named = string.match(key, '}:(.*)$')
  return named, string.match(named, '^[^/]*/(.*)$')
end
