-- item_put: set and delete items of a namespace; a set knows the namespaces that have items.
--
-- INCLUDE time ledger mutation header keeping pieces pieces_change item item_change
-- KEYS items       hash  the items
-- KEYS namespaces  set   the namespaces that have items
-- ARGV member    blob  the namespace as a member of this set
-- ARGV most      int   bytes that one field may take
-- ARGV items...  blob  field, ttl_ms (0: for ever; empty: delete it), payload, ...
--
-- RETURNS the version, 0 if nothing was changed
-- FAILS   CLOSED, STALE, WRONGTYPE
local items, namespaces, member, most, first_item = KEYS[4], KEYS[5], ARGV[6], tonumber(ARGV[7]), 8
if is_unknown(1) or is_unknown(2) then return 'UNKNOWN' end
if is_cold(1) or is_cold(2) then return 'COLD' end
local is_changed, now = false, whole(microseconds())
for i = first_item, #ARGV, 3 do
  local field, ttl_ms = ARGV[i], ARGV[i + 1]
  if ttl_ms == '' then
    is_changed = remove(items, field) == 1 or is_changed
  else
    local found, created, _, ends = header_at(items, field)
    if not found or is_over(ends) then created = now end
    local header = table.concat({ created, now, end_of(ttl_ms), ttl_ms }, ' ')
    set_content(items, field, header .. '\n' .. ARGV[i + 2], most)
    is_changed = true
  end
end
return done(is_changed and changed_items(items, namespaces, member) or '0')
