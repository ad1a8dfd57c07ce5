-- namespace_join: find out whether Redis lacks what the durable tier has, and raise the clock to the tier's.
--
-- So no version is given out twice.
-- The mark `$joined` in `kept` is `joined <stamp>` (Redis had all of the tier's up to this stamp) or
-- `recovering <stamp>` (what the tier has above it is being forgotten here). It goes where Redis goes: flushed with it,
-- set back with it. Whoever stops on the way leaves it, and the next one begins again.
--
-- INCLUDE time
-- KEYS clock    string  last version handed out, then the time until which the namespace is closed, if it is
-- KEYS changes  stream  the namespace's change stream
-- KEYS kept     hash    `s` or `k` by the key that lasts by argument, and the mark
-- ARGV highest  int   the tier's highest stamp; -1: it cannot be asked
-- ARGV mended   text  the stamp above which everything has been forgotten by now, on behalf of an earlier answer
--
-- RETURNS `joined`; `behind <stamp>` where what the tier has above this stamp must be forgotten here; `empty 0` where
--         nothing is here that could be forgotten
local clock, changes, kept = KEYS[1], KEYS[2], KEYS[3]
local highest, mended = tonumber(ARGV[1]), ARGV[2]
local held = redis.call('GET', clock)
local mark, from = string.match(redis.call('HGET', kept, '$joined') or '', '^(%a+) (%d+)$')

local function number_of(entry)
  return entry and tonumber(string.match(entry[1], '^%d+'))
end

local last = tonumber(held and string.match(held, '^%d+') or 0)
if not held then last = number_of(redis.call('XREVRANGE', changes, '+', '-', 'COUNT', '1')[1]) or 0 end

-- A writer that had not heard of the loss may have raised the clock by now, but the stream still shows the gap: the
-- last change before it, or nothing.
local function gap()
  local oldest = number_of(redis.call('XRANGE', changes, '-', '+', 'COUNT', '1')[1])
  if not oldest or oldest > highest then return nil end
  local stamp = whole(highest)
  if redis.call('XRANGE', changes, stamp, stamp, 'COUNT', '1')[1] then return nil end
  return number_of(redis.call('XREVRANGE', changes, whole(highest - 1), '-', 'COUNT', '1')[1])
end

-- Above which stamp Redis may lack what the tier has; nil: it lacks nothing.
local function behind()
  if highest == 0 then return nil end
  if not held or not mark then return 0 end
  local recovered = mark == 'recovering'
  if recovered and from == mended and last >= highest then return nil end
  local since
  if last < highest then
    since = last
  elseif recovered or highest > tonumber(from) then
    since = gap()
  end
  if recovered then return math.min(since or tonumber(from), tonumber(from)) end
  return since
end

local since = behind()
if not held or last < highest then
  local closed = held and string.match(held, '^%d+( %d+)') or ''
  redis.call('SET', clock, whole(math.max(last, highest, held and 0 or microseconds())) .. closed)
end
if since then
  redis.call('HSET', kept, '$joined', 'recovering ' .. whole(since))
  return held and 'behind ' .. whole(since) or 'empty 0'
end
if highest >= 0 then redis.call('HSET', kept, '$joined', 'joined ' .. whole(highest)) end
return 'joined'
