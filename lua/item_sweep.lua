-- item_sweep: delete the items of a namespace that are over.
--
-- INCLUDE time ledger mutation header keeping pieces pieces_change item item_change
-- KEYS items       hash  the items
-- KEYS namespaces  set   the namespaces that have items
-- ARGV member  blob  the namespace as a member of this set
--
-- RETURNS how many were deleted
-- FAILS   CLOSED, STALE, WRONGTYPE
local items, namespaces, member, removed = KEYS[4], KEYS[5], ARGV[6], 0
if is_unknown(1) or is_unknown(2) then return 'UNKNOWN' end
if is_cold(1) or is_cold(2) then return 'COLD' end
for _, field in ipairs(redis.call('HKEYS', items)) do
  local found, _, _, ends = header_at(items, field)
  if found and not string.find(field, '\r', 1, true) and is_over(ends) then removed = removed + remove(items, field) end
end
if removed > 0 then changed_items(items, namespaces, member) end
return done(whole(removed))
