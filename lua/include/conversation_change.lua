-- conversation_change: changes of a conversation: create, append, truncate, state, tags, lifetime, index.
--
-- Needs mutation.lua and conversation.lua before it. The first own keys of a script are `updates`, the conversations of
-- the namespace by the version of their last change (`conversation.tags:...` likewise, of those with a tag), and
-- `endings`, `<name>\n<user>\n<agent>\n<app>` of conversations by the end of their lifetime in ms.
local updates, endings = KEYS[4], KEYS[5]
local TAGS = { 'user', 'agent', 'app' }
local FORGOTTEN_AT_ONCE = 16

local function tag_key(tag, value)
  return string.gsub(updates, '%$conversation%.index:', '$conversation.tags:', 1) .. ':' .. tag .. ':' .. value
end

local function ending_of(head)
  return table.concat({ head.name, head.user, head.agent, head.app }, '\n')
end

local function score(key, number, member) redis.call('ZADD', key, number, member) end
local function unscore(key, member) redis.call('ZREM', key, member) end

-- Remove a conversation from the index and the indexes of its tags.
local function unlist(head)
  redis.call('ZREM', updates, head.name)
  redis.call('ZREM', endings, ending_of(head))
  for _, tag in ipairs(TAGS) do
    if head[tag] ~= '' then unscore(tag_key(tag, head[tag]), head.name) end
  end
end

-- Remove conversations that have expired from the indexes, a few at each change.
local function unlist_expired(base)
  local now_ms = whole(math.floor(microseconds() / 1000))
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', endings, '-inf', now_ms, 'LIMIT', '0', FORGOTTEN_AT_ONCE)) do
    local name, user, agent, app = string.match(member, '^([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)$')
    local ends = place_of(base .. ':' .. name, 'ends')
    if not ends then
      unlist({ name = name, user = user, agent = agent, app = app })
    elseif ends == '0' then
      redis.call('ZREM', endings, member)
    else
      redis.call('ZADD', endings, ends, member)
    end
  end
end

-- A new conversation; it is stored by `save`.
local function new_head(key)
  local head = { key = key, revision = '0', length = 0, start = 0, pinned = 0, chain = '', state = '0', by = actor,
    ['ttl_ms'] = '0', ends = '0', renews = '0', user = '', agent = '', app = '', parent = '', at = '0' }
  head.base, head.name = base_of(key)
  return head
end

-- The name of a new segment; `0` is taken if an expired conversation of this name left one to its forks.
local function name_segment(head, version)
  local first = head.name .. '{0}'
  if not (exists(log_key(head, first)) or exists(readers_key(head, first))) then return first end
  return head.name .. '{' .. version .. '}'
end

-- Store what an append changes: most changes are single entries.
local function store_progress(key, head, version)
  redis.call('HSET', key, 'revision', head.revision, 'updated', version, 'length', whole(head.length), 'state', head.state,
    'ends', head.ends)
end

local function store_head(key, head, version)
  redis.call('HSET', key, 'revision', head.revision, 'updated', version, 'created', head.created, 'by', head.by,
    'length', whole(head.length), 'segment', head.segment, 'start', whole(head.start), 'pinned', whole(head.pinned),
    'chain', head.chain, 'state', head.state, 'ttl_ms', head.ttl_ms, 'ends', head.ends, 'renews', head.renews,
    'user', head.user, 'agent', head.agent, 'app', head.app, 'parent', head.parent, 'at', head.at)
end

-- Store a head and its place in the indexes under a version, and announce the change.
local function save(head, version, operation, is_renewed)
  local is_new = not head.created
  if is_new then head.created = version end
  if not head.segment then head.segment = name_segment(head, version) end
  if is_renewed or head.renews == '1' then renew(head) end
  if head.is_stored and not is_renewed then
    store_progress(head.key, head, version)
  else
    store_head(head.key, head, version)
  end
  redis.call('ZADD', updates, version, head.name)
  for _, tag in ipairs(TAGS) do
    if head[tag] ~= '' then score(tag_key(tag, head[tag]), version, head.name) end
  end
  if head.ends ~= '0' then
    redis.call('ZADD', endings, head.ends, ending_of(head))
  elseif is_renewed then
    redis.call('ZREM', endings, ending_of(head))
  end
  if head.ends ~= '0' or is_renewed then apply_end(head) end
  if is_new or head.ends ~= '0' then unlist_expired(head.base) end
  announce(version, operation, head.key)
end

-- Set tags, and whether and when the conversation ends; `terms` as in conversation_append. Returns whether the
-- lifetime begins anew.
local function apply_terms(head, terms)
  for i, tag in ipairs(TAGS) do
    local value = terms[4 + i]
    if value ~= '' and value ~= head[tag] then
      if head.created then unlist(head) end
      head[tag], head.is_stored = value, false
    end
  end
  if terms[3] == '' then return false end
  head.ttl_ms, head.renews = terms[3], terms[4]
  return true
end

-- Of the terms of a call (see conversation_append), a line each; an empty text stands for none of them.
local NO_TERMS = { '', '', '', '0', '', '', '', '0' }
local function parse_terms(text)
  if text == '' then return NO_TERMS end
  local terms = {}
  for line in string.gmatch(text .. '\n', '([^\n]*)\n') do terms[#terms + 1] = line end
  return terms
end

-- The reply for a condition that does not hold; nil if all hold. An empty condition holds always, `!` if the
-- conversation exists.
local function refusal(head, expect, if_state)
  if expect == '!' then
    if not head then return 'N' end
    expect = ''
  end
  local revision, state = head and head.revision or '0', head and head.state or '0'
  if expect ~= '' and expect ~= revision then return 'C ' .. revision end
  if if_state ~= '' and if_state ~= state then return 'S ' .. state end
  return nil
end

-- The segments of the first `length` entries.
local function links_before(head, length)
  local links = {}
  for _, link in ipairs(links_of(head)) do
    if link[2] < length then links[#links + 1] = { link[1], link[2], math.min(link[3], length) } end
  end
  return links
end

-- Those of the entries ARGV[first] to ARGV[last] that are not in the first `length` entries: `{ id, member }` each.
local function new_entries(head, length, first, last)
  local fresh, seen, links = {}, {}, nil
  for i = first, last, 2 do
    local id = ARGV[i]
    if id ~= '' and not links then links = head.segment and links_before(head, length) or {} end
    if id == '' or not (seen[id] or position_of_id(head, links, id)) then
      fresh[#fresh + 1] = { id, ARGV[i + 1] }
      if id ~= '' then seen[id] = true end
    end
  end
  return fresh
end

local function push(key, items) redis.call('RPUSH', key, unpack(items)) end
local function set_fields(key, flat) redis.call('HSET', key, unpack(flat)) end

-- Append entries under versions from `version` on.
local function append(head, version, fresh)
  if #fresh == 0 then return end
  if not head.segment then head.segment = name_segment(head, whole(version)) end
  local log, ids = log_key(head, head.segment), ids_key(head, head.segment)
  local items, places = {}, {}
  for i, entry in ipairs(fresh) do
    local id = entry[1]
    local size = id == '' and '' or #id
    items[#items + 1] = whole(version + i - 1) .. ' ' .. actor .. ' ' .. size .. '\n' .. id .. entry[2]
    if id ~= '' then places[#places + 1], places[#places + 2] = id, whole(head.length + i - 1) end
    if #items == PAGE or i == #fresh then
      push(log, items)
      if #places > 0 then set_fields(ids, places) end
      items, places = {}, {}
    end
  end
  head.length = head.length + #fresh
  head.revision = whole(version + #fresh - 1)
end

local function trim(key, length) redis.call('LTRIM', key, '0', whole(length - 1)) end

-- Remove the entries of the own segment from a position on, with their ids.
local function cut(head, keep)
  local log, ids = log_key(head, head.segment), ids_key(head, head.segment)
  for from = keep, head.length - 1, PAGE do
    local gone = {}
    for _, item in ipairs(collect(head, links_of(head), from, math.min(from + PAGE, head.length), {})) do
      local size, id_at = string.match(item, '^%d+ %S+ (%d+)\n()')
      if size then gone[#gone + 1] = string.sub(item, id_at, id_at + tonumber(size) - 1) end
    end
    for _, id in ipairs(gone) do unset_field(ids, id) end
  end
  if keep == head.start then
    drop(log)
    drop(ids)
  else
    trim(log, keep - head.start)
  end
end

-- Stop reading a segment; it is deleted if no other conversation reads it.
local function leave(head, segment, is_shared)
  if is_shared then
    unset_field(readers_key(head, segment), head.name)
    settle(head, segment)
  else
    drop(log_key(head, segment))
    drop(ids_key(head, segment))
  end
end

-- Keep the first `keep` entries. What forks share stays theirs: the conversation then goes on in a new segment.
local function truncate(head, keep, version)
  if keep >= head.start and keep >= head.pinned then
    cut(head, keep)
  else
    local links, chain = links_of(head), {}
    for i, link in ipairs(links) do
      if link[2] < keep then
        chain[#chain + 1] = table.concat({ link[1], whole(link[2]), whole(math.min(link[3], keep)), '' }, '\n')
      else
        leave(head, link[1], i < #links or head.pinned > 0)
      end
    end
    head.chain, head.segment, head.start, head.pinned = table.concat(chain), head.name .. '{' .. version .. '}', keep, 0
    head.is_stored = false
  end
  head.length = keep
  head.revision = version
end

-- Set and remove fields of the state: field, member (empty: remove) from ARGV `first` on.
local function patch(head, version, first, count)
  if count == 0 then return end
  local key = head.base .. '.state:' .. head.name
  for i = first, first + 2 * count - 1, 2 do
    if ARGV[i + 1] == '' then unset_field(key, ARGV[i]) else set_field(key, ARGV[i], ARGV[i + 1]) end
  end
  head.state = version
end

-- `<revision> <length> <entries added> <version of the state>`
local function outcome(head, added)
  return table.concat({ head.revision, whole(head.length), whole(added), head.state }, ' ')
end
