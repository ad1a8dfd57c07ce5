-- plan_save: save a plan, unless the same one was saved within a time window.
--
-- INCLUDE time ledger mutation header keeping decision decided
-- KEYS plans       hash  plans by id, and the newest id by plan hash
-- KEYS session     none  the key from which those of the session are derived
-- KEYS order       list  `<id> <plan hash> <symbol>`, oldest first
-- KEYS duplicates  hash  `<id> <confidence> <method>` by digest, which lives longer than the plan
-- KEYS ages        zset  digests by the id of their newest plan
-- KEYS executions  hash  executions by plan id
-- KEYS finished    list  executions that have ended
-- KEYS stats       hash  counts
-- KEYS sessions    set   sessions that have plans
-- KEYS refusals    list  the newest refused duplicates, newest first
-- ARGV window_ms   int   age up to which the same plan is a duplicate; 0: save in any case
-- ARGV digest      text  digest of the plan
-- ARGV plan_hash   text  its short name
-- ARGV symbol      text  as in JSON
-- ARGV merits      text  `<confidence> <method>`
-- ARGV body        blob  the plan's JSON, from its hash on
-- ARGV most        int   number of plans that a session stores
-- ARGV events      text  prefix of the session's channels
-- ARGV similar     text  ids of plans that the caller found similar, the most similar first, separated by commas
-- ARGV seen        text  id of the newest plan of the session when the caller compared; empty: it has not compared
-- ARGV history     0|1   1: the durable tier keeps plans that leave the list
--
-- RETURNS `saved <id>`, `duplicate <ms since> <id> <confidence> <method>`, `similar <ms since> <id>`, or `behind`:
--         another plan with this symbol was saved since; COLD when the session may be in the durable tier alone
-- FAILS   CLOSED, STALE, WRONGTYPE
local plans, session, order, duplicates, ages = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local executions, finished, stats, sessions, refusals = KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local window_ms, digest, plan_hash, symbol, merits = tonumber(ARGV[6]), ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local body, most, events, similar, seen = ARGV[11], tonumber(ARGV[12]), ARGV[13], ARGV[14], ARGV[15]
local history = ARGV[16] == '1'
local LONGEST_WINDOW_US, MOST_PRUNED, MOST_EVICTED = 2592000000000, 64, 8
if is_cold(1) then return 'COLD' end
local now = microseconds()

local function keep(version)
  if is_kept(1) then keep_session(stats, redis.call('LLEN', order), redis.call('LLEN', finished), version) end
end

if window_ms > 0 then
  local known = redis.call('HGET', duplicates, digest)
  local since_us = known and now - tonumber(string.match(known, '^%d+'))
  if since_us and since_us < window_ms * 1000 then
    keep(prevented(stats, refusals, session, symbol, events, 'plan', string.match(known, '^%d+')))
    return done('duplicate ' .. whole(math.max(0, math.floor(since_us / 1000))) .. ' ' .. known)
  end
end

local function age_ms(id)
  return math.max(0, math.floor((now - tonumber(id)) / 1000))
end

for id in string.gmatch(similar, '%d+') do
  if age_ms(id) < window_ms and redis.call('HEXISTS', plans, id) == 1 then
    keep(prevented(stats, refusals, session, symbol, events, 'plan', id))
    return done('similar ' .. whole(age_ms(id)) .. ' ' .. id)
  end
end

if seen ~= '' then
  -- Whether a plan with this symbol was saved after one that the caller has compared.
  local function is_behind()
    for i = -1, -redis.call('LLEN', order), -1 do
      local id, of = string.match(redis.call('LINDEX', order, i), '^(%d+) %x+ (.*)$')
      if tonumber(id) <= tonumber(seen) then return false end
      if of == symbol then return true end
    end
    return false
  end

  if is_behind() then return done('behind') end
end

local version = tick(1)
local id = whole(version)
local text = '{"timestamp_ms":' .. at_ms(version) .. ',"plan_id":"' .. id .. '",' .. body
redis.call('HSET', plans, id, text, plan_hash, id)
local replaced = is_kept(1) and redis.call('HGET', duplicates, digest)
redis.call('HSET', duplicates, digest, id .. ' ' .. merits)
redis.call('ZADD', ages, id, digest)
local length = redis.call('RPUSH', order, id .. ' ' .. plan_hash .. ' ' .. symbol)
if length == 1 then redis.call('SADD', sessions, string.match(session, '[^:]*$')) end
-- One call in sixteen prunes, and may delete more than sixteen calls add.
local prunes = string.sub(digest, 1, 1) == '0'
if replaced or length > most or prunes then
  local function decision_in(text)
    return (string.match(text, '("symbol":.-),"confidence":') or text) .. (string.match(text, '"reasoning":.*$') or '')
  end

  -- Whether no window can match a listed plan any more: it is too old, or the newest plan with its hash is the same.
  local function is_spent(old, newest)
    if now - tonumber(old) > LONGEST_WINDOW_US then return true end
    if newest == old then return false end
    local texts = redis.call('HMGET', plans, old, newest or old)
    -- Another client has deleted one of them: there is nothing to match.
    if not texts[1] or not texts[2] then return true end
    return decision_in(texts[1]) == decision_in(texts[2])
  end

  -- The tier no longer needs a plan, unless it is history.
  local function forget_plan(old)
    if not history then keep_document(1, 'plan', 'plan/' .. old, id) end
  end

  -- The tier no longer needs a plan that matched by its digest, unless it is listed.
  local function drop_unlisted(known)
    local old = known and string.match(known, '^%d+')
    if old and redis.call('HEXISTS', plans, old) == 0 then forget_plan(old) end
  end

  -- Delete the oldest plan, but its execution can still be read by its hash.
  local function evict()
    local old, bearing = string.match(redis.call('LPOP', order), '^(%d+) (%x+)')
    if not old then return end
    local newest = redis.call('HGET', plans, bearing)
    if is_kept(1) and is_spent(old, newest) then forget_plan(old) end
    if newest ~= old then
      redis.call('HDEL', plans, old)
      return
    end
    redis.call('HDEL', plans, old, bearing)
    if redis.call('HEXISTS', executions, old) == 0 then return end
    redis.call('HSET', executions, bearing, old)
    keep_document(1, 'name', 'name/' .. bearing, id, '{"plan_id":"' .. old .. '"}')
  end

  -- Delete digests that no window can match any more.
  local function prune()
    local past = redis.call('ZRANGEBYSCORE', ages, '-inf', whole(now - LONGEST_WINDOW_US), 'LIMIT', 0, MOST_PRUNED)
    if #past == 0 then return end
    if is_kept(1) then
      for _, known in ipairs(redis.call('HMGET', duplicates, unpack(past))) do drop_unlisted(known) end
    end
    redis.call('HDEL', duplicates, unpack(past))
    redis.call('ZREM', ages, unpack(past))
  end

  drop_unlisted(replaced)
  for _ = 1, math.min(length - most, MOST_EVICTED) do evict() end
  if prunes then prune() end
end

keep_document(1, 'plan', 'plan/' .. id, id, text)
keep(id)
announce(id, 'plan.saved', session .. ':' .. id)
publish(events, 'plan.saved', text)
return done('saved ' .. id)
