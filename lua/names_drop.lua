-- names_drop: remove names from the index of the names in use, unless they are in use again.
--
-- It may be repeated.
--
-- INCLUDE time names
-- KEYS names  zset  see include/names.lua
-- ARGV gone...  text  names that were found free
--
-- RETURNS 1
-- FAILS   WRONGTYPE
local names, gone = KEYS[1], {}
for i = 1, #ARGV do gone[i] = ARGV[i] end
unlist_names(names, string.sub(names, 1, -6), gone)
return 1
