-- naming: add the name of what a mutation creates to the index of the names in use.
--
-- Needs mutation.lua and names.lua before it.

-- Add the name of which a key was just created: `<head>lock:shared:index`, or of a queue `<head>queue.tasks:shared:jobs`.
local function created(key)
  local head = string.sub(clock, 1, -6)
  local kind, rest = string.match(string.sub(key, #head + 1), '^(%l+)[^:]*(:.*)$')
  list_name(head .. 'names', head, kind .. rest)
end
