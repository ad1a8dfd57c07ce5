-- conversation_fork: create a conversation that shares the entries of another up to one of them, and copies its state.
--
-- INCLUDE time ledger mutation conversation conversation_change
-- KEYS updates  zset  the conversations of the namespace by their last change
-- KEYS endings  zset  those that expire
-- KEYS head     hash  the conversation
-- KEYS parent  hash  the head of the conversation to fork
-- ARGV at      text  id or version of the last shared entry; empty: all entries
-- ARGV terms   text  as in conversation_append; without a lifetime or tag, that of the parent
--
-- RETURNS a line as conversation_append; `C <revision>` if the new conversation exists, `N` if the parent does not exist, `A`
--         if the entry is not in it
-- FAILS   CLOSED, STALE, WRONGTYPE
local head_key = KEYS[6]
local parent_key, at, terms = KEYS[7], ARGV[6], parse_terms(ARGV[7])
local MOST_LINKS = 64

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
local head = new_head(head_key)
for _, field in ipairs({ 'ttl_ms', 'renews', 'user', 'agent', 'app' }) do head[field] = parent[field] end
head.parent, head.at, head.revision = parent.name, whole(shared), version
apply_terms(head, terms)
renew(head)
head.segment = name_segment(head, version)

if #links > MOST_LINKS then
  -- A read looks at every segment, so a longer chain is copied.
  for from = 0, shared - 1, PAGE do
    local page, places = collect(parent, links, from, math.min(from + PAGE, shared), {}), {}
    push(log_key(head, head.segment), page)
    for i, item in ipairs(page) do
      local size, id_at = string.match(item, '^%d+ %S+ (%d+)\n()')
      if size then
        places[#places + 1] = string.sub(item, id_at, id_at + tonumber(size) - 1)
        places[#places + 1] = whole(from + i - 1)
      end
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
save(head, version, 'conversation.fork', true)
return done(outcome(head, shared))
