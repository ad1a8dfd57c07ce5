-- episode_summarize: store a summary of an episode, unless there is one of a later state.
--
-- INCLUDE time ledger mutation
-- KEYS episode  stream  the events
-- KEYS summary  string  `<version of the last covered event> <text>`
-- ARGV upto  int   version of the last covered event
-- ARGV text  blob  the summary
--
-- RETURNS `1` if stored, `0` if a newer one exists or the episode does not
-- FAILS   CLOSED, STALE
local episode, summary, upto, text = KEYS[4], KEYS[5], ARGV[6], ARGV[7]
local newest = string.match(redis.call('GETRANGE', summary, 0, 15), '^%d+')
local left_ms = redis.call('PTTL', episode)
if left_ms < 1 or (newest and tonumber(newest) > tonumber(upto)) then return done('0') end
redis.call('SET', summary, upto .. ' ' .. text, 'PX', whole(left_ms))
return done('1')
