-- bucket: what is missing from a bucket of tokens, as `<microseconds> <parts missing then> <parts of a token>`.
--
-- A token is divided into so many parts that a whole number of them comes in each microsecond: nothing is rounded.

-- (parts missing now, now); `unit` parts make a token, `rate` of them come in each microsecond.
local function missing_from(bucket, unit, rate)
  local now = microseconds()
  local held = redis.call('GET', bucket)
  if not held then return 0, now end
  local stamp, missing, parts = string.match(held, '^(%d+) (%d+) (%d+)$')
  stamp, missing, parts = tonumber(stamp), tonumber(missing), tonumber(parts)
  -- Somebody with another limit has divided tokens in another way.
  if parts ~= unit then missing = math.ceil(missing / parts * unit) end
  -- A clock that was set back must not let more through.
  now = math.max(now, stamp)
  return math.max(0, missing - (now - stamp) * rate), now
end
