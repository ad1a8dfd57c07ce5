-- conversation_append: append entries to conversations, patch their states, and set their tags and lifetimes.
--
-- Appends that one client makes at the same moment share one call; they are independent, and each is made as a whole or
-- not at all. The first one creates a conversation. Entries whose ids are in the log already are left out; if the log
-- has all of them, the append changes nothing and succeeds, whatever its conditions.
--
-- INCLUDE time ledger mutation packing header keeping conversation_ids conversation_index
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
local FIRST_GROUP, ARGUMENTS, LARGE_ENTRY = 6, 2, 2
-- The field `plain` of a head that is behind its log.
local USUAL, UNUSUAL, FIRST_SEGMENT, NONE = '3', '4', '{0s}', {}

local function plain_of(key) return redis.call('HGET', key, 'plain') end
local function plain_head(key) return unpack(redis.call('HMGET', key, 'segment', 'state', unpack(TAGS))) end
local function set_plain(key, plain) redis.call('HSET', key, 'plain', plain) end
local function push(key, ...) return redis.call('RPUSH', key, ...) end
local function set_places(key, ...) redis.call('HSET', key, ...) end
local function score_all(key, flat) redis.call('ZADD', key, unpack(flat)) end

-- The index entries of plain conversations that were changed: they are stored at the end.
local listed, listed_count, replies, item_header = {}, 0, {}, ' ' .. actor .. ' \n'

-- The reply line for an error of the server: a table or a text.
local function error_line(problem)
  return 'E ' .. string.gsub(type(problem) == 'table' and problem.err or problem, '\n', ' ')
end

-- Add entries to the log of a plain conversation, each id once; returns the new length, and how many are new: 0 if none.
local function push_new(first, last, version, segment)
  local log, ids = base .. '.log:' .. segment, base .. '.ids:' .. segment
  local items, named, seen, count = {}, {}, {}, 0
  for n = first, last, 2 do
    local id, at, is_shared = ARGV[n], nil, nil
    if id ~= '' then at, is_shared = place_of_id(ids, segment, id) end
    if not (at or seen[id]) then
      count = count + 1
      items[count] = whole(version + count - 1) .. ' ' .. actor .. ' ' .. (id == '' and id or #id) .. '\n' .. id .. ARGV[n + 1]
      if id ~= '' then seen[id], named[#named + 1] = true, { id, count, is_shared } end
    end
  end
  if count == 0 then return nil, 0 end

  local length, places, values = push(log, unpack(items)), {}, {}
  for _, one in ipairs(named) do
    add_place(places, values, ids, segment, one[1], length - count + one[2] - 1, one[3])
  end
  if #places > 0 then set_places(ids, unpack(places)) end
  return length, count
end

-- Append small entries without terms to a plain conversation: that is what most appends are. Returns the reply; nothing if
-- this append is another one, or has no new entry: then nothing was changed.
local function append_plainly(i, at, version)
  if ARGV[at] ~= '' or is_kept(i) then return nil end
  local key, count, first, length = KEYS[3 + i], 1, at + ARGUMENTS, nil
  local last = first + 2 * ARGV[at + 1] - 1
  for n = first + 1, last, 2 do
    if string.byte(ARGV[n]) == LARGE_ENTRY then return nil end
  end
  local plain, name, revision = plain_of(key), string.sub(key, names_at), whole(version)
  if not plain or plain == '0' then return nil end
  local segment, state, behind, tags = name .. FIRST_SEGMENT, '0', USUAL, nil
  if plain ~= USUAL then
    local own, at, user, agent, app = plain_head(key)
    if not (own and tonumber(at)) then return nil end -- the general way says what is wrong with the head
    if own ~= segment or at ~= state or user .. agent .. app ~= '' then behind = UNUSUAL end
    segment, state, tags = own, at, { user, agent, app }
  end
  if last == first + 1 and ARGV[first] == '' then
    length = push(base .. '.log:' .. segment, revision .. item_header .. ARGV[last])
  else
    length, count = push_new(first, last, version, segment)
    if count == 0 then return nil end
    revision = whole(version + count - 1)
  end
  if plain ~= behind then set_plain(key, behind) end
  for t, value in ipairs(tags or NONE) do
    if value ~= '' then score(tag_key(TAGS[t], value), revision, name) end
  end
  announce_as(revision, 'conversation.append', namespace .. string.sub(key, closing + 1))
  listed[listed_count + 1], listed[listed_count + 2] = revision, name
  listed_count = listed_count + 2
  return revision .. ' ' .. whole(length) .. ' ' .. whole(count) .. ' ' .. state
end

-- Store what `listed` has; if that fails, so do all appends up to now.
local function list_appended()
  if listed_count == 0 then return end
  local is_listed, problem = pcall(score_all, updates, listed)
  listed, listed_count = {}, 0
  for i = 1, is_listed and 0 or #replies do replies[i] = error_line(problem) end
end

-- The number of versions that a group takes, and where the next group begins.
local function extent(at)
  local terms, count = ARGV[at], ARGV[at + 1]
  if terms == '' and count == '1' then return 1, at + ARGUMENTS + 2 end
  count = tonumber(count)
  local fields = terms == '' and 0 or tonumber(string.match(terms, '%d+$'))
  return count > 0 and count or 1, at + ARGUMENTS + 2 * (fields + count)
end

local needed, next_at, group, most = 0, FIRST_GROUP, 0, #ARGV
while next_at <= most do
  group = group + 1
  if is_cold(group) then return 'COLD' end
  local versions, after = extent(next_at)
  needed, next_at = needed + versions, after
end

local version = tick(needed)
if group > 1 then packet = {} end
group, next_at = 1, FIRST_GROUP
while next_at <= most do
  local is_made, reply = pcall(append_plainly, group, next_at, version)
  if is_made and not reply then break end
  replies[group] = is_made and reply or error_line(reply)
  local versions, after = extent(next_at)
  group, next_at, version = group + 1, after, version + versions
end
list_appended()
if next_at > most then return done(table.concat(replies, '\n')) end

-- The other appends take the general way. Its functions follow here, so that most calls do not create them.
--
-- INCLUDE conversation_log conversation conversation_change
local function is_plain(head) return head.plain and head.plain ~= '0' and not is_kept(head.place) end

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
  -- No entries and no terms: a plain conversation stays as it is, others begin their lifetime anew.
  if #fresh == 0 and (count > 0 or ARGV[at] == '' and is_plain(head)) then return outcome(head, 0) end
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

while next_at <= most do
  local is_made, reply = pcall(append_plainly, group, next_at, version)
  if is_made and not reply then
    list_appended()
    is_made, reply = pcall(append_to, group, next_at, version)
  end
  replies[group] = is_made and reply or error_line(reply)
  local versions, after = extent(next_at)
  group, next_at, version = group + 1, after, version + versions
end
list_appended()
return done(table.concat(replies, '\n'))
