-- conversation_delete: delete a conversation; forks keep the entries that they share with it.
--
-- INCLUDE time ledger mutation conversation conversation_change
-- KEYS updates  zset  the conversations of the namespace by their last change
-- KEYS endings  zset  those that expire
-- KEYS head     hash  the conversation
-- ARGV expect  text  expected revision; empty: any
--
-- RETURNS the version of the deletion; `0` if it did not exist; `C <revision>` if the condition does not hold
-- FAILS   CLOSED, STALE, WRONGTYPE
local head_key = KEYS[6]
local head = head_of(head_key)
local refused = refusal(head, ARGV[6], '')
if refused then return refused end
if not head then return '0' end
local version = whole(tick(1))
local links = links_of(head)
for i, link in ipairs(links) do leave(head, link[1], i < #links or head.pinned > 0) end
drop(head.key)
drop(head.base .. '.state:' .. head.name)
unlist(head)
unlist_expired(head.base)
announce(version, 'conversation.delete', head.key)
return done(version)
