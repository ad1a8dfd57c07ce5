-- outbox_settle: the durable tier has some entries: they go, and the states of their keys move on.
--
-- KEYS outbox   stream  what the tier had not got
-- KEYS keys...  any     pairs: a key, or where its presence shows, and its state
-- ARGV group      text  consumer group that may have been given the entries
-- ARGV cache_ms   int   how long a copy of what is known to last stays here
-- ARGV absent_ms  int   how long a deleted key is known to be nowhere
-- ARGV entries    text  ids, with blanks between
-- ARGV stamps...  int   for each pair: the newest stamp that the tier has; 0 leaves the state as it is
--
-- RETURNS how many entries were there
local outbox, group, cache_ms, absent_ms = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

local function move_on(key, state, stamp)
  local what, held, expires, kind = string.match(redis.call('GET', state) or '', '^(%a+) (%d+) ?(%d*) ?(%a*)$')
  if held ~= stamp then return end
  local is_here = redis.call('EXISTS', key) == 1
  if what == 'deleted' and not is_here then
    redis.call('SET', state, 'missing', 'PX', absent_ms)
  elseif kind == 'k' and expires == '0' and is_here then
    redis.call('PEXPIRE', key, cache_ms)
    redis.call('SET', state, 'cached', 'PX', cache_ms)
  else
    redis.call('DEL', state)
  end
end

for i = 2, #KEYS, 2 do move_on(KEYS[i], KEYS[i + 1], ARGV[4 + i / 2]) end
local gone = 0
for id in string.gmatch(ARGV[4], '%S+') do
  redis.pcall('XACK', outbox, group, id)
  gone = gone + redis.call('XDEL', outbox, id)
end
return gone
