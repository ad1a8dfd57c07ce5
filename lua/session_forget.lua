-- session_forget: remove all that a session has decided.
--
-- INCLUDE time ledger mutation
-- KEYS session     none  the key beside which all of it lies
-- KEYS plans       hash  plans by id, and the newest id by plan hash
-- KEYS order       list  plans, oldest first
-- KEYS duplicates  hash  plans by digest
-- KEYS ages        zset  digests by age
-- KEYS executions  hash  executions by plan id
-- KEYS finished    list  executions, newest first
-- KEYS stats       hash  counts
-- KEYS sessions    set   sessions that have plans
--
-- RETURNS how many plans were removed
-- FAILS   CLOSED, STALE, WRONGTYPE
local session, plans, order, duplicates, ages = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local executions, finished, stats, sessions = KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local length = redis.call('LLEN', order)
redis.call('SREM', sessions, string.match(session, '[^:]*$'))
if redis.call('UNLINK', plans, order, duplicates, ages, executions, finished, stats) > 0 then
  announce(whole(tick(1)), 'session.forgotten', session)
end
return done(whole(length))
