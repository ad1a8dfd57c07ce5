-- key_stage: make a part of a key ready, some rows at a time, before key_fill puts it in its place.
--
-- KEYS staged  any  where it is made ready
-- ARGV command  text  what makes it: SET, RPUSH, HSET, SADD or ZADD
-- ARGV before   int   how many rows are there already
-- ARGV ttl_ms   int   it goes by itself unless more comes, or it is fetched, within this
-- ARGV row...   blob  what comes behind the key, row by row
--
-- RETURNS `staged`, also for a repeat; `gone` when the rows before these are not there any more
local staged, command, before, ttl_ms = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local SIZES = { RPUSH = 'LLEN', HSET = 'HLEN', SADD = 'SCARD', ZADD = 'ZCARD' }
local held = SIZES[command] and redis.call(SIZES[command], staged) or 0
if before > 0 and held == 0 then return 'gone' end
-- What is pushed twice is there twice.
if command == 'RPUSH' and held ~= before then return held > before and 'staged' or 'gone' end
redis.call(command, staged, unpack(ARGV, 4, #ARGV))
redis.call('PEXPIRE', staged, ttl_ms)
return 'staged'
