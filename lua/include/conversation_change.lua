-- conversation_change: changes of a conversation: create, append, truncate, state, tags, lifetime, index.
--
-- Needs mutation.lua, header.lua, kept.lua or unkept.lua, conversation.lua, and conversation_index.lua before it. The first own key of a script is
-- the head of a conversation, the only key that the durable tier knows: all else follows from the documents of the
-- conversation, its head, `<version>` for each entry, and `state/<field>`.
local FORGOTTEN_AT_ONCE = 16

local function ending_of(head)
  return table.concat({ head.name, head.user, head.agent, head.app }, '\n')
end

local function unscore(key, member) redis.call('ZREM', key, member) end
local function ended(key, now_ms)
  return redis.call('ZRANGEBYSCORE', key, '-inf', now_ms, 'LIMIT', '0', FORGOTTEN_AT_ONCE)
end

-- Remove a conversation from the index and the indexes of its tags.
local function unlist(head)
  unscore(updates, head.name)
  unscore(endings, ending_of(head))
  for _, tag in ipairs(TAGS) do
    if head[tag] ~= '' then unscore(tag_key(tag, head[tag]), head.name) end
  end
end

-- Remove conversations that have expired from the indexes, a few at each change.
local function unlist_expired(base)
  local now_ms = whole(math.floor(microseconds() / 1000))
  for _, member in ipairs(ended(endings, now_ms)) do
    local name, user, agent, app = string.match(member, '^([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)$')
    local ends = place_of(base .. ':' .. name, 'ends')
    if not ends then
      unlist({ name = name, user = user, agent = agent, app = app })
    elseif ends == '0' then
      unscore(endings, member)
    else
      score(endings, ends, member)
    end
  end
end

-- A new conversation; it is stored by `save`. `i`: the place of its head among the own keys of the script.
local function new_head(key, i)
  local head = { key = key, revision = '0', length = 0, start = 0, pinned = 0, chain = '', state = '0', by = actor,
    ['ttl_ms'] = '0', ends = '0', renews = '0', user = '', agent = '', app = '', parent = '', at = '0', ['kept'] = '' }
  head.base, head.name = base_of(key)
  head.place = i
  return head
end

-- The conversation of the own key `i` of the script; nil if it does not exist.
local function changed_head(key, i)
  local head = head_of(key)
  if head then head.place = i end
  return head
end

-- The name of a new segment; `0s` is taken if an expired conversation of this name left one to its forks.
local function name_segment(head, version)
  local first = head.name .. '{0s}'
  if not (exists(log_key(head, first)) or exists(readers_key(head, first))) then return first end
  return head.name .. '{' .. version .. 's}'
end

-- The field `plain` of a head that is not behind its log: whether a conversation is as most are.
local function plainness(head)
  if head.ends ~= '0' or head.chain ~= '' or head.kept ~= '' then return '0' end
  return head.user .. head.agent .. head.app == '' and '1' or '2'
end

-- Store what an append changes: most changes are single entries.
local function store_progress(key, head, version)
  redis.call('HSET', key, 'plain', plainness(head), 'revision', head.revision, 'updated', version,
    'length', whole(head.length), 'state', head.state, 'ends', head.ends)
end

local function store_head(key, head, version)
  -- First the fields that appends read: a small hash is searched from its beginning.
  redis.call('HSET', key, 'plain', plainness(head), 'revision', head.revision, 'length', whole(head.length),
    'segment', head.segment, 'state', head.state, 'updated', version, 'created', head.created, 'by', head.by,
    'start', whole(head.start), 'pinned', whole(head.pinned), 'chain', head.chain, 'ttl_ms', head.ttl_ms, 'ends', head.ends, 'renews', head.renews,
    'user', head.user, 'agent', head.agent, 'app', head.app, 'parent', head.parent, 'at', head.at, 'kept', head.kept)
end

-- A text in JSON; names and tags have no control characters.
local function in_json(text)
  return '"' .. string.gsub(text, '[\\"]', '\\%0') .. '"'
end

local function keep_entry(head, item, stamp)
  local version = string.sub(item, 1, 16)
  keep_coded(head.place, 'entry', version, version, stamp, 'entry', item)
end

local function keep_field(head, name, member, stamp)
  keep_coded(head.place, 'state', 'state/' .. name, stamp, stamp, member == '' and 'gone' or 'member', member)
end

-- Send all entries and the state to the tier: it had none of them, or forgets what it had.
local function keep_all(head, stamp)
  local links = links_of(head)
  for from = 0, head.length - 1, PAGE do
    for _, item in ipairs(collect(head, links, from, math.min(from + PAGE, head.length), {})) do
      keep_entry(head, item, stamp)
    end
  end
  local state = pairs_of(head.base .. '.state:' .. head.name)
  for i = 1, #state, 2 do keep_field(head, state[i], state[i + 1], stamp) end
end

-- Send what a step has changed to the tier: `head.left` are the entries that it added, `head.gone` the ones that it removed,
-- `head.patched` the fields of the state; or all, if `head.is_whole`. `stamp` is the version of the step.
local function keep_conversation(head, stamp, is_new)
  local floor
  if head.is_whole or not is_new and head.kept ~= '1' then
    keep_all(head, stamp)
    floor = stamp
  else
    for _, item in ipairs(head.left or {}) do keep_entry(head, item, stamp) end
    for _, item in ipairs(head.gone or {}) do
      keep_document(head.place, 'entry', string.sub(item, 1, 16), stamp)
    end
    for _, field in ipairs(head.patched or {}) do keep_field(head, field[1], field[2], stamp) end
  end
  local body = table.concat({ '{"revision":', head.revision, ',"updated":', stamp, ',"created":', head.created, ',"by":',
    in_json(head.by), ',"state":', head.state, ',"ttl_ms":', head.ttl_ms, ',"renews":', head.renews, ',"user":',
    in_json(head.user), ',"agent":', in_json(head.agent), ',"app":', in_json(head.app), ',"parent":',
    in_json(head.parent), ',"at":', head.at, '}' })
  keep_head(head.place, 'conversation', stamp, whole(head.length), body, head.ends, floor)
end

-- Store a head and its place in the indexes under a version, and announce the change.
local function save(head, version, operation, is_renewed)
  local is_new = not head.created
  if is_new then head.created = version end
  if not head.segment then head.segment = name_segment(head, version) end
  if is_renewed or head.renews == '1' then renew(head) end
  local lasts = is_kept(head.place)
  if lasts then keep_conversation(head, version, is_new) end
  if lasts ~= (head.kept == '1') then head.kept, head.is_stored = lasts and '1' or '', false end
  if head.is_stored and not is_renewed then
    store_progress(head.key, head, version)
  else
    store_head(head.key, head, version)
  end
  score(updates, version, head.name)
  for _, tag in ipairs(TAGS) do
    if head[tag] ~= '' then score(tag_key(tag, head[tag]), version, head.name) end
  end
  if head.ends ~= '0' then
    score(endings, head.ends, ending_of(head))
  elseif is_renewed then
    unscore(endings, ending_of(head))
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

-- Of the terms of a call (see conversation_append), a line each; an empty text means none of them.
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

-- The entries of ARGV[first] to ARGV[last] that are not in the first `length` entries: `{ id, member, whether the field
-- of the id may exist }` each.
local function new_entries(head, length, first, last)
  local fresh, seen, links = {}, {}, nil
  for i = first, last, 2 do
    local id = ARGV[i]
    if id ~= '' and not links then links = head.segment and links_before(head, length) or {} end
    local at, is_shared
    if id ~= '' then at, is_shared = position_of_id(head, links, id) end
    if not (at or seen[id]) then
      fresh[#fresh + 1] = { id, ARGV[i + 1], is_shared }
      if id ~= '' then seen[id] = true end
    end
  end
  return fresh
end

local function push(key, items) redis.call('RPUSH', key, unpack(items)) end
local function set_fields(key, flat) redis.call('HSET', key, unpack(flat)) end
local function mark_large(ids) redis.call('HSETNX', ids, '', '1') end

-- Append entries under versions from `version` on.
local function append(head, version, fresh)
  if #fresh == 0 then return end
  local lasts = is_kept(head.place)
  head.left = lasts and {}
  if not head.segment then head.segment = name_segment(head, whole(version)) end
  local log, ids = log_key(head, head.segment), ids_key(head, head.segment)
  local items, places, values = {}, {}, {}
  for i, entry in ipairs(fresh) do
    local id = entry[1]
    if string.byte(entry[2]) == LARGE then mark_large(ids) end
    local size = id == '' and '' or #id
    items[#items + 1] = whole(version + i - 1) .. ' ' .. actor .. ' ' .. size .. '\n' .. id .. entry[2]
    if lasts then head.left[i] = items[#items] end
    if id ~= '' then add_place(places, values, ids, head.segment, id, head.length + i - 1, entry[3]) end
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
    local items = collect(head, links_of(head), from, math.min(from + PAGE, head.length), {})
    loosen(head, head.segment, items)
    for _, item in ipairs(items) do
      local _, id = member_of(item)
      if id then drop_place(ids, head.segment, id) end
    end
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
    drop_segment(head, segment)
  end
end

-- Keep the first `keep` entries. What forks share stays theirs: the conversation then goes on in a new segment.
local function truncate(head, keep, version)
  if is_kept(head.place) then
    head.is_whole = keep == 0
    head.gone = keep > 0 and collect(head, links_of(head), keep, head.length, {}) or {}
  end
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
    head.chain, head.segment, head.start, head.pinned = table.concat(chain), head.name .. '{' .. version .. 's}', keep, 0
    head.is_stored = false
  end
  head.length = keep
  head.revision = version
end

-- Set and remove fields of the state: field, member (empty: remove) from ARGV `first` on.
local function patch(head, version, first, count)
  if count == 0 then return end
  local key = head.base .. '.state:' .. head.name
  head.patched = {}
  for i = first, first + 2 * count - 1, 2 do
    head.patched[#head.patched + 1] = { ARGV[i], ARGV[i + 1] }
    if ARGV[i + 1] == '' then unset_field(key, ARGV[i]) else set_field(key, ARGV[i], ARGV[i + 1]) end
  end
  head.state = version
end

-- The references of blobs that no entry needs any more, a line each, after a reply.
local function loose_lines()
  return #loose > 0 and '\n' .. table.concat(loose, '\n') or ''
end

-- `<revision> <length> <entries added> <version of the state>`
local function outcome(head, added)
  return table.concat({ head.revision, whole(head.length), whole(added), head.state }, ' ')
end
