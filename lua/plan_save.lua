-- plan_save: save plans, each unless the same one was saved within a time window.
--
-- Plans that one client saves at the same moment in a session share one call; they are independent.
--
-- INCLUDE time ledger mutation packing sharing header keeping decision decided
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
-- ARGV most      int   number of plans that a session stores
-- ARGV events    text  prefix of the session's channels
-- ARGV history   0|1   1: the durable tier keeps plans that leave the list
-- ARGV saves...  blob  of each plan:
--                        age up to which the same plan is a duplicate, in milliseconds; 0: save in any case
--                        digest of the plan
--                        its short name, the plan hash
--                        its symbol, as in JSON
--                        `<confidence> <method>`
--                        the plan's JSON, from its hash on
--                        ids of plans that the caller found similar, the most similar first, separated by commas
--                        id of the newest plan of the session when the caller compared; empty: it has not compared
--
-- RETURNS the reply of one plan; of several, each with its length and a space before it. A reply is `saved <id>`,
--         `duplicate <ms since> <id> <confidence> <method>`, `similar <ms since> <id>`, `behind`: another plan with
--         this symbol was saved since, or `damaged`: another client has written what is known of the plan. COLD, for
--         all, when the session may be in the durable tier alone
-- FAILS   CLOSED, STALE, WRONGTYPE
local plans, session, order, duplicates, ages = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local executions, finished, stats, sessions, refusals = KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local most, events, history = tonumber(ARGV[6]), ARGV[7], ARGV[8] == '1'
local BEFORE_FIRST, ARGUMENTS = 8, 8
local LONGEST_WINDOW_US, MOST_PRUNED, MOST_EVICTED = 2592000000000, 64, 8
if is_cold(1) then return 'COLD' end
local now, count_of_saves = microseconds(), (#ARGV - BEFORE_FIRST) / ARGUMENTS
-- How many plans are listed; entries of the duplicate index that were replaced; whether to prune: one plan in sixteen does,
-- and may delete more than sixteen add.
local length, replaced, prunes = 0, {}, false
-- Of plans that are saved and not yet written: fields of the plans, of the duplicate index, scores, and list entries.
local texts, merits_of, scores, entries, merits_by_digest = {}, {}, {}, {}, {}
if count_of_saves > 1 then packet = {} end

local function age_ms(id)
  return math.max(0, math.floor((now - tonumber(id)) / 1000))
end

local function write_plans()
  if #entries == 0 then return end
  redis.call('HSET', plans, unpack(texts))
  redis.call('HSET', duplicates, unpack(merits_of))
  redis.call('ZADD', ages, unpack(scores))
  length = redis.call('RPUSH', order, unpack(entries))
  if length == #entries then redis.call('SADD', sessions, string.match(session, '[^:]*$')) end
  texts, merits_of, scores, entries = {}, {}, {}, {}
end

-- Whether a plan with a symbol was saved after one that the caller has compared.
local function is_behind(symbol, seen)
  write_plans()
  for i = -1, -redis.call('LLEN', order), -1 do
    local id, of = string.match(redis.call('LINDEX', order, i), '^(%d+) %x+ (.*)$')
    if tonumber(id) <= tonumber(seen) then return false end
    if of == symbol then return true end
  end
  return false
end

-- Save the plan whose arguments begin at `at`; returns its reply.
local function save(at)
  local window_ms, digest, plan_hash, symbol = tonumber(ARGV[at]), ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local merits, body, similar, seen = ARGV[at + 4], ARGV[at + 5], ARGV[at + 6], ARGV[at + 7]
  if window_ms > 0 then
    local known = merits_by_digest[digest] or redis.call('HGET', duplicates, digest)
    local id = known and string.match(known, '^%d+')
    if known and not id then return 'damaged' end
    local since_us = known and now - tonumber(id)
    if since_us and since_us < window_ms * 1000 then
      prevented(next_version(count_of_saves), stats, refusals, session, symbol, events, 'plan', id)
      return 'duplicate ' .. whole(age_ms(id)) .. ' ' .. known
    end
  end
  for id in string.gmatch(similar, '%d+') do
    if age_ms(id) < window_ms and redis.call('HEXISTS', plans, id) == 1 then
      prevented(next_version(count_of_saves), stats, refusals, session, symbol, events, 'plan', id)
      return 'similar ' .. whole(age_ms(id)) .. ' ' .. id
    end
  end
  if seen ~= '' and is_behind(symbol, seen) then return 'behind' end

  local id = next_version(count_of_saves)
  local text = '{"timestamp_ms":' .. at_ms(tonumber(id)) .. ',"plan_id":"' .. id .. '",' .. body
  if is_kept(1) then replaced[#replaced + 1] = redis.call('HGET', duplicates, digest) or nil end
  local place, known = #entries, id .. ' ' .. merits
  texts[place * 4 + 1], texts[place * 4 + 2], texts[place * 4 + 3], texts[place * 4 + 4] = id, text, plan_hash, id
  merits_of[place * 2 + 1], merits_of[place * 2 + 2], merits_by_digest[digest] = digest, known, known
  scores[place * 2 + 1], scores[place * 2 + 2] = id, digest
  entries[place + 1] = id .. ' ' .. plan_hash .. ' ' .. symbol
  if string.sub(digest, 1, 1) == '0' then prunes = true end
  keep_document(1, 'plan', 'plan/' .. id, id, text)
  announce(id, 'plan.saved', session .. ':' .. id)
  publish(events, 'plan.saved', text)
  return 'saved ' .. id
end

local replies = {}
for i = 1, count_of_saves do replies[i] = save(BEFORE_FIRST + (i - 1) * ARGUMENTS + 1) end
write_plans()

if #replaced > 0 or length > most or prunes then
  local function decision_in(text)
    return (string.match(text, '("symbol":.-),"confidence":') or text) .. (string.match(text, '"reasoning":.*$') or '')
  end

  -- Whether no window can match a listed plan any more: it is too old, or the newest plan with its hash is the same.
  local function is_spent(old, bearer)
    if now - tonumber(old) > LONGEST_WINDOW_US then return true end
    if bearer == old then return false end
    local texts = redis.call('HMGET', plans, old, bearer or old)
    -- Another client has deleted one of them: there is nothing to match.
    if not texts[1] or not texts[2] then return true end
    return decision_in(texts[1]) == decision_in(texts[2])
  end

  -- The tier no longer needs a plan, unless it is history.
  local function forget_plan(old)
    if not history then keep_document(1, 'plan', 'plan/' .. old, newest_version) end
  end

  -- The tier no longer needs a plan that matched by its digest, unless it is listed.
  local function drop_unlisted(known)
    local old = known and string.match(known, '^%d+')
    if old and redis.call('HEXISTS', plans, old) == 0 then forget_plan(old) end
  end

  -- Delete the oldest plans, but their executions can still be read by their hash.
  local function evict(count)
    local olds, bearings, gone, borne = {}, {}, {}, {}
    for _, entry in ipairs(redis.call('LPOP', order, whole(count)) or {}) do
      local old, bearing = string.match(entry, '^(%d+) (%x+)')
      if old then olds[#olds + 1], bearings[#bearings + 1] = old, bearing end
    end
    if #olds == 0 then return end
    local bearers = redis.call('HMGET', plans, unpack(bearings))
    for i, old in ipairs(olds) do
      if is_kept(1) and is_spent(old, bearers[i]) then forget_plan(old) end
      gone[#gone + 1] = old
      if bearers[i] == old then
        gone[#gone + 1] = bearings[i]
        if redis.call('HEXISTS', executions, old) == 1 then
          borne[#borne + 1], borne[#borne + 2] = bearings[i], old
          keep_document(1, 'name', 'name/' .. bearings[i], newest_version, '{"plan_id":"' .. old .. '"}')
        end
      end
    end
    redis.call('HDEL', plans, unpack(gone))
    if #borne > 0 then redis.call('HSET', executions, unpack(borne)) end
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

  for _, known in ipairs(replaced) do drop_unlisted(known) end
  if length > most then evict(math.min(length - most, MOST_EVICTED * count_of_saves)) end
  if prunes then prune() end
end

if newest_version and is_kept(1) then
  keep_session(stats, redis.call('LLEN', order), redis.call('LLEN', finished), newest_version)
end
return done(joined(replies))
