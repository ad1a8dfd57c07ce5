-- conversation_replace: replace the entries of a conversation after one of them.
--
-- INCLUDE time ledger mutation header keeping conversation_log conversation_ids conversation conversation_index conversation_change
-- KEYS head     hash  the conversation
-- ARGV terms       text  as in conversation_append
-- ARGV after       text  id or version of the last entry that stays; empty: none stays
-- ARGV fields...   blob  as in conversation_append
-- ARGV entries...  blob  id (empty: none), encoded value, ...
--
-- RETURNS a line as conversation_append, then a line for each reference of a blob that no entry needs any more; `N` if the
--         conversation does not exist, `A` if the entry is not in it; COLD if it may be in the
--         durable tier alone
-- FAILS   CLOSED, STALE, WRONGTYPE
local terms, after = parse_terms(ARGV[6]), ARGV[7]
local count = tonumber(terms[8])
local first_field = 8
local first_entry = first_field + 2 * count

if is_cold(1) then return 'COLD' end
local head = changed_head(KEYS[4], 1)
local refused = refusal(head, terms[1], terms[2])
if refused then return refused end
if not head then return 'N' end
local keep = 0
if after ~= '' then
  local at = position_of(head, links_of(head), after)
  if not at then return 'A' end
  keep = at + 1
end

local fresh = new_entries(head, keep, first_entry, #ARGV)
local version = tick(#fresh + 1)
truncate(head, keep, whole(version))
append(head, version + 1, fresh)
local last_version = whole(version + #fresh)
patch(head, last_version, first_field, count)
local is_renewed = apply_terms(head, terms)
save(head, last_version, first_entry > #ARGV and keep == 0 and 'conversation.clear' or 'conversation.replace', is_renewed)
return done(outcome(head, #fresh) .. loose_lines())
