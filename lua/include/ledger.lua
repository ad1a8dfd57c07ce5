-- ledger: a repeated operation returns its first reply instead of running again.
--
-- One hash per client; a slot serves one operation at a time and stores the last one's number and
-- reply. A number below the stored one is a late call of a closed connection.

local function replayed(operations, slot, number)
  local seen = redis.call('HGET', operations, slot)
  if not seen then return nil end
  local last, reply = string.match(seen, '^(%d+) (.*)$')
  if not last then return redis.error_reply('DAMAGED another client has written to the ledger') end
  if last == number then return reply end
  if tonumber(last) > tonumber(number) then return redis.error_reply('STALE this operation is no longer repeated by its client') end
  return nil
end

local function remember(operations, slot, number, keep_ms, reply)
  local fresh = redis.call('HSET', operations, slot, number .. ' ' .. reply)
  if keep_ms ~= '0' then
    redis.call('PEXPIRE', operations, keep_ms)
  elseif fresh == 1 then
    -- The client's ledger was lost (a flush): the new one must expire as well.
    redis.call('PEXPIRE', operations, 180000)
  end
  return reply
end
