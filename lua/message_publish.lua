-- message_publish: send a message to a channel once, even if the call is repeated.
--
-- INCLUDE ledger
-- KEYS operations  hash  this client's operation ledger
-- ARGV slot     int   ledger slot of this operation
-- ARGV number   int   number of this operation, rising per client
-- ARGV keep_ms  int   extend the ledger's expiry by this; 0: unchanged
-- ARGV channel  text  the channel
-- ARGV message  blob  the encoded value
--
-- RETURNS `<number of subscribers that received it>`
-- FAILS   STALE
local operations, slot, number, keep_ms, channel, message = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local before = replayed(operations, slot, number)
if before then return before end
-- The ledger first: a server without memory for it must refuse before the message is sent.
remember(operations, slot, number, keep_ms, '0')
local receivers = redis.call('PUBLISH', channel, message)
return remember(operations, slot, number, keep_ms, string.format('%.0f', receivers))
