-- conversation_append: append entries to conversations, patch their states, and set their tags and lifetimes.
--
-- Appends that one client makes at the same moment share one call; they are independent, and each is made as a whole or
-- not at all. The first one creates a conversation. Entries whose ids are in the log already are left out; if the log
-- has all of them, the append changes nothing and succeeds, whatever its conditions.
--
-- INCLUDE time ledger mutation header keeping conversation conversation_change
-- KEYS heads... hash  the conversations, one for each group of arguments
-- ARGV terms...    text  of each conversation: empty, or lines: expected revision (empty: any, 0: no conversation, !:
--                        any, but there is one), expected version of the state (empty: any, 0: none), ttl_ms (empty:
--                        unchanged, 0: none), renews 0|1, user, agent, app (empty: unchanged), number of fields
-- ARGV count...    int   the number of entries, after the terms of each conversation
-- ARGV fields...   blob  then field of the state, encoded value (empty: remove the field), ...
-- ARGV entries...  blob  then id (empty: none), encoded value, ...
--
-- RETURNS one line a conversation: `<revision> <length> <entries added> <version of the state>`; `C <revision>` or
--         `S <version of the state>` (0: none), or `N` with `!`, if a condition does not hold; `E <error>` if the server
--         refused, for example since another client has written to the key; COLD if one may be in the durable tier alone
-- FAILS   CLOSED, STALE
local FIRST_GROUP, ARGUMENTS = 6, 2

local function append_to(i, at, version)
  local terms, count = parse_terms(ARGV[at]), tonumber(ARGV[at + 1])
  local fields = tonumber(terms[8])
  local first_field = at + ARGUMENTS
  local first_entry = first_field + 2 * fields

  is_cold(i) -- again: an append of this call may have created it
  local head = changed_head(KEYS[3 + i], i)
  local refused = refusal(head, terms[1], terms[2])
  local is_new = head == nil
  head = head or new_head(KEYS[3 + i], i)
  local fresh = new_entries(head, head.length, first_entry, first_entry + 2 * count - 1)
  if #fresh == 0 and count > 0 then return outcome(head, 0) end
  if refused then return refused end

  local last_version = whole(version + math.max(#fresh, 1) - 1)
  if is_new then head.revision = last_version end
  append(head, version, fresh)
  patch(head, last_version, first_field, fields)
  local is_renewed = apply_terms(head, terms)
  local operation = #fresh > 0 and 'append' or fields > 0 and 'state' or 'expire'
  save(head, last_version, 'conversation.' .. operation, is_renewed)
  return outcome(head, #fresh)
end

-- The head of a plain conversation: the fields that an append needs.
local function plain_head(key)
  local found = redis.call('HMGET', key, 'plain', 'revision', 'length', 'segment', 'state')
  if found[1] ~= '1' and found[1] ~= '2' then return nil end
  return { revision = found[2], length = tonumber(found[3]), state = found[5], is_stored = true,
    ['tags'] = found[1] == '2' and redis.call('HMGET', key, unpack(TAGS)) or nil,
    ['name'] = string.sub(key, names_at),
    log = base .. '.log:' .. found[4], ['segment'] = found[4] }
end

local function push_one(key, item) redis.call('RPUSH', key, item) end
local function store_plain(key, head)
  redis.call('HSET', key, 'revision', head.revision, 'updated', head.revision, 'length', whole(head.length))
end
local function score_all(key, flat) redis.call('ZADD', key, unpack(flat)) end
local function score_tags(head)
  for i, value in ipairs(head.tags or {}) do
    if value ~= '' then score(tag_key(TAGS[i], value), head.revision, head.name) end
  end
end

-- Plain conversations of this call, and their keys. Their heads and places in the index are stored at the end.
local plain, keys = {}, {}

-- Store what was appended to a plain conversation, before it is changed in another way.
local function store_appended(key)
  local head = plain[key]
  if head and not head.is_stored then
    store_plain(key, head)
    score(updates, head.revision, head.name)
    score_tags(head)
    head.is_stored = true
  end
end

-- As append_to, for an append without terms of small entries to a plain conversation: that is what most are. Returns
-- nothing for others.
local function append_plainly(i, at, version)
  if ARGV[at] ~= '' or is_kept(i) then return nil end
  local key, count, first_entry = KEYS[3 + i], tonumber(ARGV[at + 1]), at + ARGUMENTS
  for n = first_entry, first_entry + 2 * count - 1, 2 do
    if string.byte(ARGV[n + 1]) == LARGE then return nil end
  end
  local head = plain[key] or plain_head(key)
  if not head then return nil end
  if not plain[key] then plain[key], keys[#keys + 1] = head, key end
  local added = 0
  for n = first_entry, first_entry + 2 * count - 1, 2 do
    local id, size, ids = ARGV[n], '', nil
    if id ~= '' then size, ids = #id, base .. '.ids:' .. head.segment end
    local at, is_shared
    if ids then at, is_shared = place_of_id(ids, head.segment, id) end
    if not at then
      local text = whole(version + added)
      push_one(head.log, text .. ' ' .. actor .. ' ' .. size .. '\n' .. id .. ARGV[n + 1])
      if ids then
        local place = {}
        add_place(place, {}, ids, head.segment, id, head.length, is_shared)
        set_field(ids, place[1], place[2])
      end
      head.length, head.revision, added = head.length + 1, text, added + 1
    end
  end
  if added > 0 then
    head.is_stored = false
    announce_as(head.revision, 'conversation.append', namespace .. string.sub(key, closing + 1))
  end
  return head.revision .. ' ' .. whole(head.length) .. ' ' .. added .. ' ' .. head.state
end

-- Append in the way that fits.
local function append_somehow(i, at, version)
  local reply = append_plainly(i, at, version)
  if reply then return reply end
  local key = KEYS[3 + i]
  store_appended(key)
  reply = append_to(i, at, version)
  if plain[key] then plain[key] = plain_head(key) end
  return reply
end

-- The reply line for an error of the server: a table or a text.
local function error_line(problem)
  return 'E ' .. string.gsub(type(problem) == 'table' and problem.err or problem, '\n', ' ')
end

local groups, offsets, needed, at = {}, {}, 0, FIRST_GROUP
while at <= #ARGV do
  local fields, count = ARGV[at] == '' and 0 or tonumber(parse_terms(ARGV[at])[8]), tonumber(ARGV[at + 1])
  groups[#groups + 1], offsets[#offsets + 1] = at, needed
  if is_cold(#groups) then return 'COLD' end
  needed = needed + math.max(count, 1)
  at = at + ARGUMENTS + 2 * (fields + count)
end

local first_version, replies = tick(needed), {}
for i = 1, #groups do
  local is_made, reply = pcall(append_somehow, i, groups[i], first_version + offsets[i])
  replies[i] = is_made and reply or error_line(reply)
end
local places = {}
for _, key in ipairs(keys) do
  local head = plain[key]
  if head and not head.is_stored then
    store_plain(key, head)
    score_tags(head)
    places[#places + 1], places[#places + 2] = head.revision, head.name
  end
end
if #places > 0 then
  local is_listed, problem = pcall(score_all, updates, places)
  for i = 1, is_listed and 0 or #groups do replies[i] = error_line(problem) end
end
return done(table.concat(replies, '\n'))
