-- conversation_append: append entries to conversations, patch their states, and set their tags and lifetimes.
--
-- Appends that one client makes at the same moment share one call; they are independent, and each is made as a whole or
-- not at all. The first one creates a conversation. Entries whose ids are in the log already are left out; if the log
-- has all of them, the append changes nothing and succeeds, whatever its conditions.
--
-- INCLUDE time ledger mutation conversation conversation_change
-- KEYS updates  zset  the conversations of the namespace by their last change
-- KEYS endings  zset  those that expire
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
--         refused, for example since another client has written to the key
-- FAILS   CLOSED, STALE
local first_key, first_group, ARGUMENTS = 5, 6, 2

local function append_to(key, at, version)
  local terms, count = parse_terms(ARGV[at]), tonumber(ARGV[at + 1])
  local fields = tonumber(terms[8])
  local first_field = at + ARGUMENTS
  local first_entry = first_field + 2 * fields

  local head = head_of(key)
  local refused = refusal(head, terms[1], terms[2])
  local is_new = head == nil
  head = head or new_head(key)
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

local groups, needed, at = {}, 0, first_group
while at <= #ARGV do
  local fields, count = tonumber(parse_terms(ARGV[at])[8]), tonumber(ARGV[at + 1])
  groups[#groups + 1] = { at, needed }
  needed = needed + math.max(count, 1)
  at = at + ARGUMENTS + 2 * (fields + count)
end

local first_version, replies = tick(needed), {}
for i, group in ipairs(groups) do
  local is_made, reply = pcall(append_to, KEYS[first_key + i], group[1], first_version + group[2])
  -- An error of the server is a table or a text.
  if not is_made then reply = 'E ' .. string.gsub(type(reply) == 'table' and reply.err or reply, '\n', ' ') end
  replies[i] = reply
end
return done(table.concat(replies, '\n'))
