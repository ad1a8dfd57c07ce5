-- joined: whether Redis is known to lack nothing that the durable tier has (see namespace_join.lua).
local function is_joined(kept)
  return string.sub(redis.call('HGET', kept, '$joined') or '', 1, 7) == 'joined '
end
