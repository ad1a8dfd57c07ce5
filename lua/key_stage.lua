-- key_stage: stage a part of a key, some rows at a time, before key_fill moves it to its key.
--
-- KEYS staged  any  the staged part
-- ARGV command  text  the command: SET, RPUSH, HSET, SADD or ZADD
-- ARGV before   int   number of rows that it has already
-- ARGV ttl_ms   int   it expires after this, unless more rows arrive or it is moved
-- ARGV row...   blob  the arguments after the key, row by row
--
-- RETURNS `staged`, also for a repeat; `gone` if the rows before these no longer exist
local staged, command, before, ttl_ms = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local SIZES = { RPUSH = 'LLEN', HSET = 'HLEN', SADD = 'SCARD', ZADD = 'ZCARD' }
local held = SIZES[command] and redis.call(SIZES[command], staged) or 0
if before > 0 and held == 0 then return 'gone' end
-- RPUSH is not idempotent.
if command == 'RPUSH' and held ~= before then return held > before and 'staged' or 'gone' end
redis.call(command, staged, unpack(ARGV, 4, #ARGV))
redis.call('PEXPIRE', staged, ttl_ms)
return 'staged'
