-- conversation_pop: remove the newest entries of a conversation and return them.
--
-- INCLUDE time ledger mutation header keeping conversation_log conversation_ids conversation conversation_index conversation_change
-- KEYS head     hash  the conversation
-- ARGV expect  text  expected revision; empty: any
-- ARGV count   int   number of entries to remove
--
-- RETURNS `<revision> <length> <bytes of each removed entry, separated by commas>\n<the entries>`, then a
--         line for each reference of a blob that no entry needs any more; `C <revision>` if
--         the condition does not hold (0: no conversation), `N` if the conversation does not exist; COLD if it
--         may be in the durable tier alone
-- FAILS   CLOSED, STALE, WRONGTYPE
if is_cold(1) then return 'COLD' end
local expect, count = ARGV[6], tonumber(ARGV[7])

local head = changed_head(KEYS[4], 1)
local refused = refusal(head, expect, '')
if refused then return refused end
if not head then return 'N' end
local keep = math.max(head.length - count, 0)
local gone = collect(head, links_of(head), keep, head.length, {})
if #gone > 0 then
  local version = whole(tick(1))
  truncate(head, keep, version)
  save(head, version, 'conversation.pop', false)
end
local sizes = {}
for i, item in ipairs(gone) do sizes[i] = whole(#item) end
return done(table.concat({ head.revision, whole(head.length), table.concat(sizes, ',') }, ' ') .. '\n' .. table.concat(gone) .. loose_lines())
