-- item_change: the end of a change of items: the set of namespaces knows whether this one has items.
--
-- Needs mutation.lua before it. The own keys are the items and the set.
local function changed_items(items, namespaces, member)
  local has_items = redis.call('EXISTS', items) == 1
  local moved = redis.call(has_items and 'SADD' or 'SREM', namespaces, member) == 1
  local version = tick(moved and 2 or 1)
  if moved then keep_element(2, 'set', member, has_items and '' or nil) end
  if keep_change then
    keep_change(1, whole(version), '0')
    if moved then keep_change(2, whole(version + 1), '0') end
  end
  announce(whole(version), has_items and 'hset' or 'hdel', items)
  if moved then announce(whole(version + 1), has_items and 'sadd' or 'srem', namespaces) end
  return whole(version)
end
