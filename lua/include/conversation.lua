-- conversation: the head of a conversation, and the segments of its log.
--
-- Needs time.lua, conversation_log.lua and conversation_ids.lua before it. A log is a chain of segments, each a list with a hash of the positions of given ids. A fork
-- shares the segments of its parent up to a position; the last segment of a conversation is its own, and only its
-- owner appends there. Positions and versions rise along a log, so that a position is found by a version in a binary
-- search. All keys have the name of their conversation, so scripts receive the key of the head and build the others.
--
-- HEAD revision  version of the last change of the log
-- HEAD updated   version of the last change of the log or the state
-- HEAD created, by  version of the first change, and its actor
-- HEAD length    number of entries
-- HEAD segment, start  name of the own segment, and the position at which it begins
-- HEAD pinned    position up to which other conversations share the own segment; 0: none
-- HEAD chain     the segments before it: `<name>\n<from>\n<to>\n` each
-- HEAD state     version of the last change of the state; 0: none
-- HEAD ttl_ms, ends, renews  lifetime, its end in ms since 1970 (0: none), and whether each use begins it anew
-- HEAD user, agent, app, parent, at  tags; the conversation it was forked from, and at which position
-- HEAD kept  1: the durable tier has, or gets, all of it
-- HEAD plain  1: it has one segment, no lifetime, no tags and no durable tier, so that most calls need little of its head;
--             2: likewise, but it has tags; 0: neither. 3 and 4: as 1 or 2, and the head is behind the log: the length is
--             that of the segment, revision and version of the last change are the version of the newest entry; 3 if also
--             the segment is `<name>{0s}` and there are no state and no tags
--
-- An entry is `<version> <actor> <bytes of its id, empty without one>\n<id><member>`. The member of a large entry is the
-- byte 2 and the reference to its blob. The hash of ids of a segment with such entries has the field '': `1`, or `2` if
-- another segment may refer to the same blobs.
local PAGE, LARGE = 1000, 2

local function log_key(head, segment) return head.base .. '.log:' .. segment end

-- Fail because another client has written to a key, which need not be one of the script's own.
local function damaged(key) error('DAMAGED ' .. #key .. ' ' .. key, 0) end

-- The head of a conversation; nil if it does not exist.
local function head_of(key)
  local found = redis.call('HMGET', key, 'revision', 'length', 'segment', 'start', 'pinned', 'chain', 'state', 'ttl_ms',
    'ends', 'renews', 'user', 'agent', 'app', 'created', 'by', 'parent', 'at', 'kept', 'plain', 'updated')
  if not found[1] then return nil end
  local base, name = base_of(key)
  local head = { key = key, base = base, name = name, is_stored = true, revision = found[1], length = tonumber(found[2]),
    ['segment'] = found[3], start = tonumber(found[4]), pinned = tonumber(found[5]), chain = found[6], state = found[7],
    ['ttl_ms'] = found[8], ends = found[9], renews = found[10], user = found[11], agent = found[12], app = found[13],
    ['created'] = found[14], by = found[15], parent = found[16], at = found[17],
    ['kept'] = found[18] or '', plain = found[19], updated = found[20] }
  if is_behind(head.plain) then
    head.revision, head.length = progress_of(log_key(head, head.segment))
    head.updated = head.revision
  end
  local has_numbers = head.length and head.start and head.pinned
    and tonumber(head.state) and tonumber(head.ttl_ms) and tonumber(head.ends)
  if not (has_numbers and head.segment and head.chain) then damaged(key) end
  return head
end

local function ids_key(head, segment) return head.base .. '.ids:' .. segment end
local function readers_key(head, segment) return head.base .. '.readers:' .. segment end

-- The segments of a log in order: `{ name, from, to }`; the last one is the conversation's own.
local function links_of(head)
  local links = {}
  for segment, from, to in string.gmatch(head.chain, '([^\n]+)\n(%d+)\n(%d+)\n') do
    links[#links + 1] = { segment, tonumber(from), tonumber(to) }
  end
  links[#links + 1] = { head.segment, head.start, head.length }
  return links
end

-- Helpers for keys that follow from a head. All are in the slot of the namespace.
local function pairs_of(key) return redis.call('HGETALL', key) end
local function set_field(key, field, value) redis.call('HSET', key, field, value) end
local function unset_field(key, field) redis.call('HDEL', key, field) end
local function drop(key) redis.call('UNLINK', key) end
local function exists(key) return redis.call('EXISTS', key) == 1 end

-- Add the entries at positions `from` to `to - 1` to a table.
local function collect(head, links, from, to, found)
  for _, link in ipairs(links) do
    local first, last = math.max(from, link[2]), math.min(to, link[3])
    if first < last then
      local page = range(log_key(head, link[1]), first - link[2], last - 1 - link[2])
      for _, item in ipairs(page) do found[#found + 1] = item end
    end
  end
  return found
end

local function version_at(head, links, position)
  return string.sub(collect(head, links, position, position + 1, {})[1] or '', 1, 16)
end

-- The number of entries whose version is not above this one.
local function count_until(head, links, version)
  local low, high = 0, head.length
  while low < high do
    local middle = math.floor((low + high) / 2)
    if version_at(head, links, middle) <= version then low = middle + 1 else high = middle end
  end
  return low
end

local function is_version(text)
  return #text == 16 and string.find(text, '^%d+$') ~= nil
end

-- Remove an id from the hash of a segment.
local function drop_place(ids, segment, id)
  local field, first_bytes = field_of(segment, id)
  local value = first_bytes and place_of(ids, field)
  if value then
    local _, first, last = listed_at(value, first_bytes)
    if not first then return end
    local others = string.sub(value, 1, first - 1) .. string.sub(value, last + 2)
    if others ~= '' then return set_field(ids, field, (string.gsub(others, ' $', ''))) end
  end
  unset_field(ids, field)
end

-- The position of an entry by its given id; nil if it is not in the log. Then whether the field of a new entry with this
-- id may exist.
local function position_of_id(head, links, id)
  local is_shared = false
  for i = #links, 1, -1 do
    local segment = links[i][1]
    local at, is_there = place_of_id(ids_key(head, segment), segment, id)
    if at and at >= links[i][2] and at < links[i][3] then return at end
    is_shared = is_shared or is_there
  end
  return nil, is_shared
end

-- The position of an entry by its id or version; nil if it is not in the log.
local function position_of(head, links, reference)
  local at = position_of_id(head, links, reference)
  if at or not is_version(reference) then return at end
  local count = count_until(head, links, reference)
  if count > 0 and version_at(head, links, count - 1) == reference then return count - 1 end
  return nil
end

-- The member of an item, and its id, if it was given one.
local function member_of(item)
  local size, at = string.match(item, '^%d+ %S+ (%d*)\n()')
  local bytes = tonumber(size) or 0
  return string.sub(item, at + bytes), size ~= '' and string.sub(item, at, at + bytes - 1) or nil
end

-- References to blobs that no entry needs any more.
local loose = {}

-- Collect the references of the items of a segment that are removed, unless another segment may have them.
local function loosen(head, segment, items)
  for _, item in ipairs(items) do
    local member = member_of(item)
    if string.byte(member) == LARGE then
      if place_of(ids_key(head, segment), '') == '2' then return end
      loose[#loose + 1] = string.sub(member, 2)
    end
  end
end

-- Delete a segment.
local function drop_segment(head, segment)
  local log, ids = log_key(head, segment), ids_key(head, segment)
  local first = 0
  while place_of(ids, '') == '1' do
    local items = range(log, first, first + PAGE - 1)
    loosen(head, segment, items)
    if #items < PAGE then break end
    first = first + PAGE
  end
  drop(log)
  drop(ids)
end

-- Set the expiry of a key; '0': none.
local function end_at(key, ends)
  if ends == '0' then redis.call('PERSIST', key) else redis.call('PEXPIREAT', key, ends) end
end

-- Let a shared segment live as long as the longest of its readers; delete it with the last one.
local function settle(head, segment)
  local log, ids, readers = log_key(head, segment), ids_key(head, segment), readers_key(head, segment)
  local now_ms, ends = microseconds() / 1000, nil
  local found = pairs_of(readers)
  for i = 1, #found, 2 do
    local until_ms = tonumber(found[i + 1]) or damaged(readers)
    if until_ms == 0 then
      ends = 0
    elseif until_ms <= now_ms then
      unset_field(readers, found[i])
    elseif ends ~= 0 then
      ends = math.max(ends or 0, until_ms)
    end
  end
  if not ends then
    drop_segment(head, segment)
    return drop(readers)
  end
  for _, key in ipairs({ log, ids, readers }) do end_at(key, whole(ends)) end
end

-- Enter a conversation among the readers of a shared segment, until its end.
local function share(head, segment)
  set_field(readers_key(head, segment), head.name, head.ends)
  settle(head, segment)
end

-- Give all keys of a conversation its end.
local function apply_end(head)
  end_at(head.key, head.ends)
  end_at(head.base .. '.state:' .. head.name, head.ends)
  local links = links_of(head)
  for i, link in ipairs(links) do
    if i < #links or head.pinned > 0 then
      share(head, link[1])
    else
      end_at(log_key(head, link[1]), head.ends)
      end_at(ids_key(head, link[1]), head.ends)
    end
  end
end

-- Begin the lifetime anew.
local function renew(head)
  head.ends = head.ttl_ms == '0' and '0' or whole(math.floor(microseconds() / 1000) + tonumber(head.ttl_ms))
end
