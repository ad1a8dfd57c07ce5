-- sharing: versions and replies of a call that several callers share.
--
-- Needs mutation.lua before it.
local used_versions, first_version, newest_version = 0, nil, nil

-- The next of `most` versions, which all come from one tick of the clock.
local function next_version(most)
  first_version = first_version or tick(most)
  newest_version = whole(first_version + used_versions)
  used_versions = used_versions + 1
  return newest_version
end

-- A single reply as it is; several in one text, each with its length and a space before it.
local function joined(replies)
  if #replies == 1 then return replies[1] end
  for i, reply in ipairs(replies) do replies[i] = #reply .. ' ' .. reply end
  return table.concat(replies)
end
