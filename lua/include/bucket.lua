-- bucket: the missing tokens of a bucket, as `<microseconds> <parts missing then> <parts of a token>`.
--
-- A token is divided into so many parts that each microsecond adds a whole number of them: nothing is rounded.

-- (parts missing now, now, whether no bucket was stored); `unit` parts make a token, each microsecond adds `rate` of them.
local function missing_from(bucket, unit, rate)
  local now = microseconds()
  local held = redis.call('GET', bucket)
  if not held then return 0, now, true end
  local stamp, missing, parts = string.match(held, '^(%d+) (%d+) (%d+)$')
  stamp, missing, parts = tonumber(stamp), tonumber(missing), tonumber(parts)
  -- A caller with another limit has divided tokens in another way.
  if parts ~= unit then missing = math.ceil(missing / parts * unit) end
  -- A clock that was set back must not admit more.
  now = math.max(now, stamp)
  return math.max(0, missing - (now - stamp) * rate), now, false
end
