-- unkept: the functions of kept.lua without a durable tier: they do nothing.
--
-- Needs mutation.lua before it.

-- One function for all: creating one takes time in every call.
local function nothing() end
local is_unknown, is_cold, is_cached, is_kept, begins_to_last, lacks_records =
  nothing, nothing, nothing, nothing, nothing, nothing
local keep_element, keep_value, keep_document, keep_coded, keep_head, keep_gone, wait_for_none =
  nothing, nothing, nothing, nothing, nothing, nothing, nothing
