-- set_move: move a member from one set to another of the same namespace.
--
-- INCLUDE time ledger mutation
-- KEYS source       set  where it is
-- KEYS destination  set  where it goes
-- ARGV member  blob  the coded value
--
-- RETURNS `<version> <1|0>`: whether it was there and has moved, version 0 when not
-- FAILS   CLOSED, STALE, WRONGTYPE
local source, destination, member = KEYS[4], KEYS[5], ARGV[6]
if redis.call('SMOVE', source, destination, member) == 0 then return '0 0' end
local version = tick(2)
announce(whole(version), 'srem', source)
announce(whole(version + 1), 'sadd', destination)
return done(whole(version + 1) .. ' 1')
