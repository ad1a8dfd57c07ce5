-- window: a log of admissions: at position 0 the longest requested window, then the time of each, oldest first.
--
-- All times are microseconds.

local function stamp_at(log, position)
  return tonumber(redis.call('LINDEX', log, position))
end

-- The position of the first of `count` admissions after a moment; count + 1 if all are older.
local function first_after(log, count, moment)
  if count == 0 or stamp_at(log, 1) > moment then return 1 end
  -- Mostly only a few are older: those before `low`, which advances in growing steps.
  local low, step = 2, 1
  while low + step - 1 <= count and stamp_at(log, low + step - 1) <= moment do
    low, step = low + step, step * 2
  end
  local high = math.min(low + step - 1, count + 1)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if stamp_at(log, middle) > moment then high = middle else low = middle + 1 end
  end
  return low
end
