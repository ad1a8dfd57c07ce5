-- lease_release: release leases, and notify the next waiter of each name.
--
-- Leases that one client releases at the same moment share one call; they are independent.
--
-- INCLUDE time ledger mutation waiters turns
-- KEYS keys...    any   of each lease: the holders of its name, and the waiters, as lease_acquire
-- ARGV holders... text  of each lease: the member that lease_acquire added
--
-- RETURNS one line a lease: `released`; `gone` if it had ended before; `E <error>` if another client has written to its keys
-- FAILS   CLOSED, STALE
local FIRST_KEY, FIRST_ARGUMENT = 3, 5
local replies = {}
for i = 1, #ARGV - FIRST_ARGUMENT do
  local holders, waiters = KEYS[FIRST_KEY + i * 2 - 1], KEYS[FIRST_KEY + i * 2]
  local holder = ARGV[FIRST_ARGUMENT + i]
  local ends, first = redis.pcall('ZSCORE', holders, holder), redis.pcall('ZRANGE', waiters, 0, 0)
  local refusal = type(ends) == 'table' and ends.err or first.err
  if refusal then
    replies[i] = 'E ' .. string.gsub(refusal, '\n', ' ')
  elseif not ends then
    replies[i] = 'gone'
  else
    redis.call('ZREM', holders, holder)
    if first[1] then call_next(waiters) end
    replies[i] = tonumber(ends) > microseconds() and 'released' or 'gone'
  end
end
return done(table.concat(replies, '\n'))
