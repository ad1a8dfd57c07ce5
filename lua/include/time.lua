-- time: the server's clock and whole numbers as text.

local asked_at

-- The same throughout a script, as on real servers; a second call costs nothing.
local function microseconds()
  if not asked_at then
    local now = redis.call('TIME')
    asked_at = tonumber(now[1]) * 1000000 + tonumber(now[2])
  end
  return asked_at
end

-- Lua writes large numbers as 1.7952450661235e+15 by default.
local function whole(number)
  return string.format(number % 1 == 0 and '%d' or '%.0f', number)
end
