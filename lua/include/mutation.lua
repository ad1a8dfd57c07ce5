-- mutation: the beginning of every mutation (replay, closed namespace) and its end (version, announcement).
--
-- KEYS clock       string  last assigned version, then the time until which the namespace is closed, if it is
-- KEYS changes     stream  the namespace's change stream
-- KEYS operations  hash    this client's operation ledger
-- ARGV slot     int   ledger slot of this operation
-- ARGV number   int   number of this operation, rising per client
-- ARGV keep_ms  int   extend the ledger's expiry by this; 0: unchanged
-- ARGV actor    text  actor of the change
-- ARGV cap      int   approximate length of the change stream
local clock, changes, operations = KEYS[1], KEYS[2], KEYS[3]
local slot, number, keep_ms, actor, cap = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

do -- a script has 200 locals at most, outside of blocks
  local before = replayed(operations, slot, number)
  if before then return before end
end

local last = redis.call('GET', clock)
if last and (#last ~= 16 or not string.find(last, '^%d+$')) then
  local newest, closed_until = string.match(last, '^(%d+) (%d+)$')
  if not newest or #newest ~= 16 or #closed_until > 16 then
    return redis.error_reply('DAMAGED another client has written to the clock')
  end
  if tonumber(closed_until) > microseconds() then
    return redis.error_reply('CLOSED the namespace is being cleared')
  end
  last = newest
end
-- Fails here if it is not a stream: a change that cannot be announced must not be made.
redis.call('XLEN', changes)

-- Assign `count` versions and return the first: above every earlier one, else the time in microseconds.
local function tick(count)
  if not last then
    local newest = redis.call('XREVRANGE', changes, '+', '-', 'COUNT', '1')[1]
    if not newest then
      -- The index of the names in use lacks none in a new namespace (see names.lua).
      local function begin_names(names)
        redis.pcall('ZADD', names, '0', '$complete')
      end
      begin_names(string.sub(clock, 1, -6) .. 'names')
    end
    last = newest and string.match(newest[1], '^%d+') or '0'
  end
  local version = microseconds()
  if version <= tonumber(last) then version = tonumber(last) + 1 end
  last = whole(version + count - 1)
  redis.call('SET', clock, last)
  return version
end

-- The logical key `<namespace>:<scope>:<identifier>` of a physical one: nearly all begin like that of the clock.
local closing = string.find(clock, '}', 1, true)
local namespace = string.match(clock, '{(.*)}')
local latest_key, latest_logical
local function logical(key)
  if key == latest_key then return latest_logical end
  if string.byte(key, closing) == 125 then -- the brace: the others have it further on
    latest_key, latest_logical = key, namespace .. string.sub(key, closing + 1)
    return latest_logical
  end
  -- A searchable record has a separate key, `<prefix>:$<family>:{<namespace>}:<id>`.
  local family, id = string.match(key, ':(%$%l+):{[^}]*}(:.*)$')
  return namespace .. ':' .. family .. id
end

-- One announcement of a call trims the stream, for all of them. Of a script with several changes, `packet` has those that
-- are not written yet (see packing.lua); `done` writes them at the latest.
local is_trimmed, packet, write_packet = false, nil, nil
local function announce_as(version, operation, name)
  if packet then
    local last = #packet
    packet[last + 1], packet[last + 2], packet[last + 3] = version, operation, name
    if last == 45 then write_packet() end
  elseif is_trimmed then
    redis.call('XADD', changes, version .. '-0', 'op', operation, 'key', name, 'by', actor)
  else
    redis.call('XADD', changes, 'MAXLEN', '~', cap, version .. '-0', 'op', operation, 'key', name, 'by', actor)
    is_trimmed = true
  end
end

local function announce(version, operation, key)
  announce_as(version, operation, logical(key))
end

-- Set by kept.lua with a durable tier: writes the outbox entries of this step.
local keep_change, hand_over

local function done(reply)
  if packet then write_packet() end
  if hand_over then reply = hand_over(reply) end
  return remember(operations, slot, number, keep_ms, reply)
end
