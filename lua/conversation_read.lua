-- conversation_read: read a page of a conversation's entries; begin its lifetime anew if each use does that.
--
-- INCLUDE time conversation
-- KEYS head       hash  the conversation
-- ARGV mode       text  `last`, `after` or `around`
-- ARGV reference  text  the id or version of an entry (`after`: empty: from the oldest entry)
-- ARGV limit      int   most entries
--
-- RETURNS revision, number of entries in the log, position of the first entry of the page, the entries; nil if the
--         conversation does not exist; `A` if the entry is not in it
-- FAILS   WRONGTYPE
local mode, reference, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local head = head_of(KEYS[1])
if not head then return nil end
local links, from = links_of(head), 0
if mode == 'last' then
  from = math.max(head.length - limit, 0)
elseif mode == 'after' and is_version(reference) and not position_of_id(head, links, reference) then
  -- By its version, the place of an entry is known even if the entry was removed.
  from = count_until(head, links, reference)
elseif reference ~= '' then
  local position = position_of(head, links, reference)
  if not position then return 'A' end
  from = mode == 'after' and position + 1 or math.max(position - math.floor(limit / 2), 0)
end
if head.renews == '1' then
  renew(head)
  set_field(head.key, 'ends', head.ends)
  apply_end(head)
end
return collect(head, links, from, math.min(from + limit, head.length), { head.revision, whole(head.length), whole(from) })
