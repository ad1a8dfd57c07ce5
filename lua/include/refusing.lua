-- refusing: of several requests of one call, each has a reply of its own, also if another client has written to its keys.

-- Returns the reply of a request, or `E <error>`.
local function attempt(request, ...)
  local succeeds, reply = pcall(request, ...)
  if succeeds then return reply end
  local text = type(reply) == 'table' and reply.err or tostring(reply)
  -- An error of the server begins with its code; one of this script with a place in it.
  if not string.find(text, '^%u+ ') then text = 'ERR ' .. text end
  return 'E ' .. string.gsub(text, '\n', ' ')
end
