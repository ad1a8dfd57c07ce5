-- session_forget: delete all plans and executions of a session.
--
-- INCLUDE time ledger mutation header keeping
-- KEYS plans       hash  plans by id, and the newest id by plan hash
-- KEYS session     none  the key from which those of the session are derived
-- KEYS order       list  plans, oldest first
-- KEYS duplicates  hash  plans by digest
-- KEYS ages        zset  digests by age
-- KEYS executions  hash  executions by plan id
-- KEYS finished    list  executions, newest first
-- KEYS stats       hash  counts
-- KEYS sessions    set   sessions that have plans
-- KEYS refusals    list  the newest refused duplicates, newest first
--
-- RETURNS `<version> <number of deleted plans>`, version 0 if there was nothing; COLD when the session may be in
--         the durable tier alone
-- FAILS   CLOSED, STALE, WRONGTYPE
local plans, session, order, duplicates, ages = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local executions, finished, stats, sessions, refusals = KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]
if is_cold(1) then return 'COLD' end
local length, version = redis.call('LLEN', order), '0'
redis.call('SREM', sessions, string.match(session, '[^:]*$'))
redis.call('UNLINK', refusals)
if redis.call('UNLINK', plans, order, duplicates, ages, executions, finished, stats) > 0 then
  version = whole(tick(1))
  keep_gone(1, 'session', version)
  announce(version, 'session.forgotten', session)
end
return done(version .. ' ' .. whole(length))
