-- collection_change: change lists, hashes, sets and counters, each under a version of its own.
--
-- Changes that one client makes at the same moment share one call; they are independent: one that the server refuses
-- changes nothing, and the others are made. All versions come from one tick of the clock.
--
-- INCLUDE time ledger mutation packing header keeping
-- KEYS collections...  any  the list, hash, set or counter of each change
-- ARGV terms...        text  of each change: its operation: append, hset, hdel, hincrby, incr, sadd, srem; or
--                            `<operation> <count> <ttl_ms> <max_length>`: how many arguments follow (else 2 for hset and
--                            hincrby, 1 for the others), the new expiry of the key in milliseconds (0: unchanged), and
--                            how many of the newest members of a list are kept (0: all)
-- ARGV arguments...    blob  then the arguments of the operation: the encoded value; field, encoded value, ...; fields;
--                            field and amount; amount; members
--
-- RETURNS one line a change: `<version> <result>`: the length of the list, the number of new or removed fields or members,
--         or the new number; version 0 if nothing has changed; `L` if the key may be in the durable tier alone, `U` if its
--         kind is unknown, `E <error>` if the server refused
-- FAILS   CLOSED, STALE
local FIRST_KEY, MOST = 3, 4000
-- Above it a number reply, which is a double, loses digits.
local EXACT = 9007199254740992
local count, made, first_version = #KEYS - FIRST_KEY, 0, nil

-- Make a change; returns its reply line, or the server's refusal, a table, after which nothing has changed.
local function change(key, i, operation, from, to, ttl_ms, max_length)
  local announced, result = operation, nil
  if operation == 'append' then
    result = redis.pcall('RPUSH', key, ARGV[from])
    if type(result) == 'table' then return result end
    if max_length ~= '0' and result > tonumber(max_length) then
      redis.call('LTRIM', key, '-' .. max_length, '-1')
      result = tonumber(max_length)
    end
    keep_element(i, 'list', nil, ARGV[from])
  elseif operation == 'incr' or operation == 'hincrby' then
    if operation == 'incr' then
      result = redis.pcall('INCRBY', key, ARGV[from])
    else
      result = redis.pcall('HINCRBY', key, ARGV[from], ARGV[from + 1])
    end
    if type(result) == 'table' then return result end
    if result <= -EXACT or result >= EXACT then
      result = operation == 'incr' and redis.call('GET', key) or redis.call('HGET', key, ARGV[from])
    end
    if operation == 'hincrby' then
      keep_element(i, 'hash', ARGV[from], type(result) == 'number' and whole(result) or result)
    end
  else
    -- Here, since each function costs the calls that create it.
    local function apply(key, operation, from, to)
      if operation == 'hset' then return redis.pcall('HSET', key, unpack(ARGV, from, to)) end
      if operation == 'sadd' then return redis.pcall('SADD', key, unpack(ARGV, from, to)) end
      if operation == 'hdel' then return redis.pcall('HDEL', key, unpack(ARGV, from, to)) end
      return redis.pcall('SREM', key, unpack(ARGV, from, to))
    end
    result = apply(key, operation, from, math.min(from + MOST - 1, to))
    if type(result) == 'table' then return result end
    -- Lua passes a few thousand arguments at once.
    for at = from + MOST, to, MOST do result = result + apply(key, operation, at, math.min(at + MOST - 1, to)) end
    if is_kept(i) then
      for at = from, to, operation == 'hset' and 2 or 1 do
        if operation == 'hset' then
          keep_element(i, 'hash', ARGV[at], ARGV[at + 1])
        elseif operation == 'hdel' then
          keep_element(i, 'hash', ARGV[at])
        else
          keep_element(i, 'set', ARGV[at], operation == 'sadd' and '' or nil)
        end
      end
    end
    if result == 0 and operation ~= 'hset' then
      if operation ~= 'sadd' then return '0 0' end
      if ttl_ms ~= '0' then announced = 'expire' elseif not begins_to_last(i) then return '0 0' end
    end
  end
  first_version = first_version or tick(count)
  local version = whole(first_version + made)
  made = made + 1
  if ttl_ms ~= '0' then redis.call('PEXPIRE', key, ttl_ms) end
  if keep_change then keep_change(i, version, ttl_ms) end
  announce(version, announced, key)
  return version .. ' ' .. (type(result) == 'number' and whole(result) or result)
end

local replies, at = {}, 6
if count > 1 then packet = {} end
for i = 1, count do
  local operation, needed, ttl_ms, max_length = ARGV[at], 1, '0', '0'
  if operation == 'hset' or operation == 'hincrby' then
    needed = 2
  elseif string.find(operation, ' ', 1, true) then
    operation, needed, ttl_ms, max_length = string.match(operation, '^(%l+) (%d+) (%d+) (%d+)$')
    needed = tonumber(needed)
  end
  -- Here, not before the first change: an earlier change of this call may have created the key.
  if is_unknown(i) then
    replies[i] = 'U'
  elseif is_cold(i) then
    replies[i] = 'L'
  else
    local reply = change(KEYS[FIRST_KEY + i], i, operation, at + 1, at + needed, ttl_ms, max_length)
    replies[i] = type(reply) == 'table' and 'E ' .. string.gsub(tostring(reply.err), '\n', ' ') or reply
  end
  at = at + needed + 1
end
return done(table.concat(replies, '\n'))
