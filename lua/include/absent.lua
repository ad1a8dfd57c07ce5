-- absent: what a script that only looks says where it found nothing.

-- `COLD` when the session is not here, and the caller knows who may have it; else the answer.
local function or_cold(plans, cold, answer)
  if cold == '1' and redis.call('EXISTS', plans) == 0 then return 'COLD' end
  return answer
end
