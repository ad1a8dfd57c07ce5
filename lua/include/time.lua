-- time: the server's clock and whole numbers as text.

local function microseconds()
  local now = redis.call('TIME')
  return tonumber(now[1]) * 1000000 + tonumber(now[2])
end

-- Lua writes large numbers as 1.7952450661235e+15 unless told otherwise.
local function whole(number)
  return string.format('%.0f', number)
end
