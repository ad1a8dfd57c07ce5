-- absent: the reply of a reading script that found nothing.

-- `COLD` if the session is not here and the caller has a durable tier; else the given reply.
local function or_cold(plans, cold, answer)
  if cold == '1' and redis.call('EXISTS', plans) == 0 then return 'COLD' end
  return answer
end
