-- session_forget: remove all that a session has decided.
--
-- INCLUDE time ledger mutation header keeping
-- KEYS plans       hash  plans by id, and the newest id by plan hash
-- KEYS session     none  the key beside which all of it lies
-- KEYS order       list  plans, oldest first
-- KEYS duplicates  hash  plans by digest
-- KEYS ages        zset  digests by age
-- KEYS executions  hash  executions by plan id
-- KEYS finished    list  executions, newest first
-- KEYS stats       hash  counts
-- KEYS sessions    set   sessions that have plans
--
-- RETURNS `<version> <how many plans were removed>`, version 0 when there was nothing; COLD when the session may lie in
--         the durable tier alone
-- FAILS   CLOSED, STALE, WRONGTYPE
local plans, session, order, duplicates, ages = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local executions, finished, stats, sessions = KEYS[9], KEYS[10], KEYS[11], KEYS[12]
if is_cold(1) then return 'COLD' end
local length, version = redis.call('LLEN', order), '0'
redis.call('SREM', sessions, string.match(session, '[^:]*$'))
if redis.call('UNLINK', plans, order, duplicates, ages, executions, finished, stats) > 0 then
  version = whole(tick(1))
  keep_gone(1, 'session', version)
  announce(version, 'session.forgotten', session)
end
return done(version .. ' ' .. whole(length))
