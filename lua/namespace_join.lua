-- namespace_join: find out whether Redis lacks data of the durable tier, and decide which hub restores it.
--
-- It also raises the clock to the tier's, so that no version is assigned twice; and one hub at a time restores. The
-- mark `$joined` in `kept` is part of the data: a flush deletes it, a snapshot sets it back. It is one of
--   joined <stamp> <epoch>                          Redis had all of the tier's changes up to this stamp
--   recovering <stamp> <epoch> <token> <until ms>   the holder of the token restores the tier's data above this stamp;
--                                                   it renews (kept_restore); after `until` another hub takes over
--   provisional <stamp> <epoch>                     the same is missing, and the tier was unreachable
-- No durable key is changed while a hub restores (see include/kept.lua). Epoch is the time in microseconds at which
-- the present data began: an entry of the outbox that is older may have been lost with earlier data. Hubs send it with
-- each change, since their ledgers were lost as well.
--
-- INCLUDE time packet
-- KEYS clock    string  last assigned version, then the time until which the namespace is closed, if it is
-- KEYS changes  stream  the namespace's change stream
-- KEYS kept     hash    `s` or `k` by the key that is durable by argument, the mark, and `$steps`: the number of steps
--                       of the restore so far
-- ARGV highest   int   the tier's highest stamp; -1: it is unreachable
-- ARGV restored  text  the stamp above which the caller has restored all data, and in how many steps; empty: nothing yet
-- ARGV token     text  token of the caller
-- ARGV lease_ms  int   length of the restore lease
--
-- RETURNS `joined <epoch>`; `behind <stamp>`: the caller must drop copies of what the tier has above this stamp;
--         `empty 0`: there is nothing to drop; `wait <ms>` while another hub restores;
--         `provisional <epoch>`
local clock, changes, kept = KEYS[1], KEYS[2], KEYS[3]
local highest, restored, token, lease_ms = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local held = redis.call('GET', clock)
local now_ms = math.floor(microseconds() / 1000)
local mark, from, epoch, holder, ends =
  string.match(redis.call('HGET', kept, '$joined') or '', '^(%a+) (%d+) ?(%d*) ?(%S*) ?(%d*)$')
if mark == 'recovering' and holder ~= token and now_ms < (tonumber(ends) or 0) then
  return 'wait ' .. whole(tonumber(ends) - now_ms)
end
-- A server that lost its last second meanwhile lacks the last steps.
local restored_from, steps = string.match(restored, '^(%d+) (%d+)$')
local is_restored = mark == 'recovering' and holder == token and from == restored_from
  and redis.call('HGET', kept, '$steps') == steps
local unsettled = mark == 'recovering' or mark == 'provisional'

local function number_of(entry)
  return entry and tonumber(string.match(entry[1], '^%d+'))
end

local last = tonumber(held and string.match(held, '^%d+') or 0)
if not held then last = number_of(redis.call('XREVRANGE', changes, '+', '-', 'COUNT', '1')[1]) or 0 end

-- Redis has nothing of this namespace, so the index of the names in use lacks none (see include/names.lua).
local function begin_names(names)
  redis.pcall('ZADD', names, '0', '$complete')
end
if not held and last == 0 then begin_names(string.sub(clock, 1, -6) .. 'names') end

-- A writer that did not notice the loss may have raised the clock by now, but the stream still shows the gap: the last
-- change before it, or nothing.
local function gap()
  local oldest = redis.call('XRANGE', changes, '-', '+', 'COUNT', '1')[1]
  if not oldest or number_of(changes_of(oldest)[1]) > highest then return nil end
  local before = number_of(redis.call('XREVRANGE', changes, whole(highest - 1), '-', 'COUNT', '1')[1])
  local following = redis.call('XRANGE', changes, whole(highest), '+', 'COUNT', '1')[1]
  for _, change in ipairs(following and changes_of(following) or {}) do
    local version = number_of(change)
    if version == highest then return nil end
    if version < highest then before = version end
  end
  return before
end

-- The stamp above which Redis may lack data of the tier; nil: it lacks nothing.
local function behind()
  if highest == 0 then return nil end
  if not held or not mark then return 0 end
  if is_restored and last >= highest then return nil end
  local since
  if last < highest then
    since = last
  elseif unsettled or highest > tonumber(from) then
    since = gap()
  end
  if unsettled then return math.min(since or tonumber(from), tonumber(from)) end
  return since
end

local since = behind()
if not held or last < highest then
  local closed = held and string.match(held, '^%d+( %d+)') or ''
  redis.call('SET', clock, whole(math.max(last, highest, held and 0 or microseconds())) .. closed)
end
if not since and highest < 0 then return 'joined ' .. (epoch or '') end
if not since then
  if epoch == nil or epoch == '' then epoch = whole(microseconds()) end
  redis.call('HSET', kept, '$joined', 'joined ' .. whole(highest) .. ' ' .. epoch)
  redis.call('HDEL', kept, '$steps')
  return 'joined ' .. epoch
end
-- Outbox entries from before this moment may be lost here, but delivered to the tier nevertheless.
if not unsettled or not epoch or epoch == '' then epoch = whole(microseconds()) end
if highest < 0 then
  redis.call('HSET', kept, '$joined', 'provisional ' .. whole(since) .. ' ' .. epoch)
  return 'provisional ' .. epoch
end
local until_ms = whole(now_ms + lease_ms)
redis.call('HSET', kept, '$joined', table.concat({ 'recovering', whole(since), epoch, token, until_ms }, ' '))
redis.call('HSET', kept, '$steps', '0')
-- Memories and graphs may be missing too: all must be restored.
redis.call('HDEL', kept, '$gathered')
return held and 'behind ' .. whole(since) or 'empty 0'
