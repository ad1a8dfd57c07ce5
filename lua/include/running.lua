-- running: whether a runner still has the claim on a piece of work.

-- Only until its lease ends, even if no other caller has claimed it since.
local function runs(once, token)
  local held = redis.call('HMGET', once, 'state', 'token', 'until')
  return held[1] == 'running' and held[2] == token and tonumber(held[3]) > microseconds()
end
