-- unkept: the functions of kept.lua without a durable tier: they do nothing.
--
-- Needs mutation.lua before it.

local function is_unknown() return false end
local function is_cold() return false end
local function is_cached() return false end
local function is_kept() return false end
local function begins_to_last() return false end
local function keep_element() end
local function keep_value() end
local function keep_document() end
local function keep_coded() end
local function keep_head() end
local function lacks_records() return false end
local function keep_gone() end
local function wait_for_none() end
