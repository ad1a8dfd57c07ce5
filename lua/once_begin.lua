-- once_begin: claim work that is neither done nor running; otherwise wait for it, or get its result.
--
-- INCLUDE time ledger mutation waiters
-- KEYS once     hash       state (running, done, free), token, until, attempt, actor, name of the runner, result
-- KEYS waiters  sortedset  its waiters
-- ARGV name      text  the caller: its name as waiter and as runner
-- ARGV waits     int   1: wait if another caller runs it
-- ARGV lease_ms  int   length of the claim
-- ARGV ttl_ms    int   how long after that its attempts stay counted
--
-- RETURNS `done <result>`, `yours <token> <attempt>`, or `running <milliseconds left> <1|0>`: whether first waiter
-- FAILS   CLOSED, STALE, WRONGTYPE, DAMAGED: the result of work that is done is missing
local once, waiters = KEYS[4], KEYS[5]
local name, waits, lease_ms, ttl_ms = ARGV[6], ARGV[7], ARGV[8], ARGV[9]

local held = redis.call('HMGET', once, 'state', 'until', 'attempt', 'result')
local state, ends, attempt, result = held[1], held[2], held[3], held[4]
if state == 'done' then
  if waits == '1' then redis.call('ZREM', waiters, name) end
  return result and 'done ' .. result or redis.error_reply('DAMAGED ' .. #once .. ' ' .. once)
end

local now = microseconds()
if state == 'running' and tonumber(ends) > now then
  local place = '0'
  if waits == '1' then
    enlist(waiters, name)
    if redis.call('ZRANGE', waiters, 0, 0)[1] == name then place = '1' end
  end
  return 'running ' .. whole(math.ceil((tonumber(ends) - now) / 1000)) .. ' ' .. place
end

local token = whole(tick(1))
attempt = whole(tonumber(attempt or '0') + 1)
local until_then = whole(now + tonumber(lease_ms) * 1000)
redis.call('HSET', once, 'state', 'running', 'token', token, 'until', until_then, 'attempt', attempt, 'actor', actor,
  'name', name)
redis.call('PEXPIRE', once, whole(tonumber(lease_ms) + tonumber(ttl_ms)))
if waits == '1' then redis.call('ZREM', waiters, name) end
-- Notify the first waiter, which then sees when this lease ends.
if state then call_first(waiters) end
return done('yours ' .. token .. ' ' .. attempt)
