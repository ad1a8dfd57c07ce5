-- running: whether a piece of work is still its runner's.

-- Only until its lease ends, even if nobody else has taken it since.
local function runs(once, token)
  local held = redis.call('HMGET', once, 'state', 'token', 'until')
  return held[1] == 'running' and held[2] == token and tonumber(held[3]) > microseconds()
end
