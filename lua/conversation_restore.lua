-- conversation_restore: put a conversation of an archive in its place, unless there is one as new.
--
-- INCLUDE time ledger mutation header keeping conversation_log conversation_ids conversation conversation_index conversation_change
-- KEYS head      hash  the conversation
-- KEYS parts...  any   pairs: a staged part, and its final key; the first pair is the head
-- ARGV updated  text  version of its last change
-- ARGV ends     text  end of its lifetime in ms since 1970; 0: none
-- ARGV replace  0|1   1: also replace one as new
--
-- RETURNS `y` it was written, `n` the existing one stays, `g` the staged data is gone
-- FAILS   CLOSED, STALE, WRONGTYPE
local updated, ends, replace = ARGV[6], ARGV[7], ARGV[8]
local FIRST_PART = 5

local function discard()
  for i = FIRST_PART, #KEYS, 2 do drop(KEYS[i]) end
end

for i = FIRST_PART, #KEYS, 2 do
  if not exists(KEYS[i]) then
    discard()
    return 'g'
  end
end
local before = changed_head(KEYS[4], 1)
if before and replace == '0' and tonumber(before.updated) >= tonumber(updated) then
  discard()
  return 'n'
end
if before then
  local links = links_of(before)
  for i, link in ipairs(links) do leave(before, link[1], i < #links or before.pinned > 0) end
  drop(before.key)
  drop(before.base .. '.state:' .. before.name)
  unlist(before)
end
for i = FIRST_PART, #KEYS, 2 do
  redis.call('RENAME', KEYS[i], KEYS[i + 1])
  end_at(KEYS[i + 1], ends)
end
local head = changed_head(KEYS[4], 1)
score(updates, updated, head.name)
for _, tag in ipairs(TAGS) do
  if head[tag] ~= '' then score(tag_key(tag, head[tag]), updated, head.name) end
end
if ends ~= '0' then score(endings, ends, ending_of(head)) end
unset_field(head.key, 'kept')
head.kept = ''
set_field(head.key, 'plain', plainness(head))
announce(whole(tick(1)), 'restore', head.key)
return done('y')
