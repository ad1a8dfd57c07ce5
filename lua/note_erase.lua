-- note_erase: delete notes of an app for good.
--
-- INCLUDE time ledger mutation packing header keeping note
-- KEYS keys...  any   as note_commit
-- ARGV app      text  as used in keys
--
-- RETURNS the number of deleted notes; COLD when some of it may be in the durable tier alone
-- FAILS   CLOSED, STALE, WRONGTYPE
local SHARED, app = 6, ARGV[6]
local count, own = #KEYS - 3 - SHARED, #KEYS - SHARED
local log, apps, ids = KEYS[own + 1], KEYS[own + 3], KEYS[own + 4]
local users, chains = KEYS[own + 5], KEYS[own + 6]
if lacks_records() then return 'COLD' end
local version, erased, whose = tick(count), 0, {}
if count > 1 then packet = {} end

local function erase(record, i)
  local held = redis.call('HMGET', record, 'version', 'user', 'chain')
  if not held[1] then return end
  local stamp = whole(version + i - 1)
  local named, id = named_by(record)
  redis.call('DEL', record)
  redis.call('ZREM', log, named)
  redis.call('ZREM', ids, id)
  shift(users, held[2], -1)
  shift(chains, held[3], -1)
  keep_gone(i, 'note', stamp)
  announce(stamp, 'note.erased', record)
  erased, whose[held[2]] = erased + 1, true
end

for i = 1, count do erase(KEYS[3 + i], i) end
if erased > 0 then
  -- No search can have seen a deleted note: the newest change in the log takes its place.
  local newest = redis.call('ZRANGE', log, -1, -1, 'WITHSCORES')[2]
  for user in pairs(whose) do
    if newest_of(users, user) > tonumber(newest or '0') then
      local left = string.match(redis.call('HGET', users, user), '^%d+')
      redis.call('HSET', users, user, left .. ' ' .. whole(tonumber(newest)))
    end
  end
  if redis.call('EXISTS', ids) == 0 then redis.call('SREM', apps, app) end
end
return done(whole(erased))
