-- joined: whether Redis is known to be up to date with the durable tier (see namespace_join.lua).
local function is_joined(kept)
  return string.sub(redis.call('HGET', kept, '$joined') or '', 1, 7) == 'joined '
end
