-- message_publish: send a message to a channel once, however often the call is repeated.
--
-- INCLUDE ledger
-- KEYS operations  hash  this client's operation ledger
-- ARGV slot     int   ledger slot of this operation
-- ARGV number   int   number of this operation, rising per client
-- ARGV keep_ms  int   prolong the ledger by this; 0 leaves its expiry
-- ARGV channel  text  where
-- ARGV message  blob  the coded value
--
-- RETURNS `<number of subscribers that got it>`
-- FAILS   STALE
local operations, slot, number, keep_ms, channel, message = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local before = replayed(operations, slot, number)
if before then return before end
-- The ledger first: a server without memory for it must refuse before the message is out.
remember(operations, slot, number, keep_ms, '0')
local receivers = redis.call('PUBLISH', channel, message)
return remember(operations, slot, number, keep_ms, string.format('%.0f', receivers))
