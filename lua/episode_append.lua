-- episode_append: append an event to a session's episode and trim the episode to its newest events.
--
-- INCLUDE time ledger mutation
-- KEYS episode   stream  the events
-- KEYS summary   string  the last summary of them
-- KEYS sessions  zset    the sessions of the namespace by the version of their last event
-- KEYS endings   zset    the sessions by their expiry, in milliseconds
-- ARGV session  text  its name
-- ARGV event    blob  the encoded event
-- ARGV most     int   keep this many of the newest events
-- ARGV ttl_ms   int   expire after this without another event
--
-- RETURNS `<version> <number of stored events>`
-- FAILS   CLOSED, STALE
local episode, summary, sessions, endings = KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local session, event, most, ttl_ms = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local FORGOTTEN_AT_ONCE = 16

local version = whole(tick(1))
redis.call('XADD', episode, 'MAXLEN', most, version .. '-0', 'by', actor, 'event', event)
redis.call('PEXPIRE', episode, ttl_ms)
redis.call('PEXPIRE', summary, ttl_ms)

local now_ms = math.floor(microseconds() / 1000)
for _, ended in ipairs(redis.call('ZRANGEBYSCORE', endings, '-inf', whole(now_ms), 'LIMIT', '0', FORGOTTEN_AT_ONCE)) do
  redis.call('ZREM', sessions, ended)
  redis.call('ZREM', endings, ended)
end
redis.call('ZADD', sessions, version, session)
redis.call('ZADD', endings, whole(now_ms + tonumber(ttl_ms)), session)
-- The index lives longer than every session in it, whatever lifetime other hubs set.
if redis.call('PTTL', sessions) < tonumber(ttl_ms) then redis.call('PEXPIRE', sessions, ttl_ms) end
if redis.call('PTTL', endings) < tonumber(ttl_ms) then redis.call('PEXPIRE', endings, ttl_ms) end

announce(version, 'episode.append', episode)
return done(version .. ' ' .. whole(redis.call('XLEN', episode)))
