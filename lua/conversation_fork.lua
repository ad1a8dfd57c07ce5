-- conversation_fork: create a conversation that shares the entries of another up to one of them, and copies its state.
--
-- INCLUDE time ledger mutation header keeping conversation_log conversation_ids conversation conversation_index conversation_change
-- KEYS head     hash  the conversation
-- KEYS parent  hash  the head of the conversation to fork
-- ARGV at      text  id or version of the last shared entry; empty: all entries
-- ARGV terms   text  as in conversation_append; without a lifetime or tag, that of the parent
--
-- RETURNS a line as conversation_append; `C <revision>` if the new conversation exists, `N` if the parent does not exist, `A`
--         if the entry is not in it; COLD if one of them may be in the durable tier alone
-- FAILS   CLOSED, STALE, WRONGTYPE
local head_key, parent_key, at, terms = KEYS[4], KEYS[5], ARGV[6], parse_terms(ARGV[7])
local MOST_LINKS = 64

if is_cold(1) or is_cold(2) then return 'COLD' end
local parent = head_of(parent_key)
local refused = refusal(head_of(head_key), '0', '')
if refused then return refused end
if not parent then return 'N' end
local links = links_of(parent)
local shared = parent.length
if at ~= '' then
  local position = position_of(parent, links, at)
  if not position then return 'A' end
  shared = position + 1
end

local version = whole(tick(1))
local head = new_head(head_key, 1)
for _, field in ipairs({ 'ttl_ms', 'renews', 'user', 'agent', 'app' }) do head[field] = parent[field] end
head.parent, head.at, head.revision = parent.name, whole(shared), version
apply_terms(head, terms)
renew(head)
head.segment = name_segment(head, version)

if #links > MOST_LINKS then
  -- A read looks at every segment, so a longer chain is copied; two segments then refer to the same blobs.
  for _, link in ipairs(links) do
    if place_of(ids_key(parent, link[1]), '') then
      set_field(ids_key(parent, link[1]), '', '2')
      set_field(ids_key(head, head.segment), '', '2')
    end
  end
  local values = {}
  for from = 0, shared - 1, PAGE do
    local page, places = collect(parent, links, from, math.min(from + PAGE, shared), {}), {}
    push(log_key(head, head.segment), page)
    for i, item in ipairs(page) do
      local _, id = member_of(item)
      if id then add_place(places, values, '', head.segment, id, from + i - 1, false) end
    end
    if #places > 0 then set_fields(ids_key(head, head.segment), places) end
  end
else
  local chain = {}
  for i, link in ipairs(links) do
    local to = math.min(link[3], shared)
    if link[2] < to then
      chain[#chain + 1] = table.concat({ link[1], whole(link[2]), whole(to), '' }, '\n')
      if i == #links then
        parent.pinned = math.max(parent.pinned, to)
        set_field(parent.key, 'pinned', whole(parent.pinned))
        set_field(readers_key(parent, link[1]), parent.name, parent.ends)
      end
      share(head, link[1])
    end
  end
  head.chain, head.start = table.concat(chain), shared
end
head.length = shared

local state = pairs_of(parent.base .. '.state:' .. parent.name)
for i = 1, #state, 2 do set_field(head.base .. '.state:' .. head.name, state[i], state[i + 1]) end
if #state > 0 then head.state = version end
head.is_whole = true
save(head, version, 'conversation.fork', true)
return done(outcome(head, shared))
