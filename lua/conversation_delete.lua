-- conversation_delete: delete a conversation; forks keep the entries that they share with it.
--
-- INCLUDE time ledger mutation header keeping conversation_log conversation_ids conversation conversation_index conversation_change
-- KEYS head     hash  the conversation
-- ARGV expect  text  expected revision; empty: any
--
-- RETURNS the version of the deletion, then a line for each reference of a blob that no entry needs any more; `0` if it
--         did not exist; `C <revision>` if the condition does not hold; COLD if it may be in the durable tier alone
-- FAILS   CLOSED, STALE, WRONGTYPE
if is_cold(1) then return 'COLD' end
local head = changed_head(KEYS[4], 1)
local refused = refusal(head, ARGV[6], '')
if refused then return refused end
if not head then return '0' end
local version = whole(tick(1))
local links = links_of(head)
for i, link in ipairs(links) do leave(head, link[1], i < #links or head.pinned > 0) end
drop(head.key)
drop(head.base .. '.state:' .. head.name)
keep_gone(1, 'conversation', version)
unlist(head)
unlist_expired(head.base)
announce(version, 'conversation.delete', head.key)
return done(version .. loose_lines())
