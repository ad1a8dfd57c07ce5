-- object_delete: remove objects of a user's model.
--
-- INCLUDE time ledger mutation
-- KEYS objects...  any  where they are stored
--
-- RETURNS `<last version, or 0> <number removed>`
-- FAILS   CLOSED, STALE
local version, removed = '0', 0
for i = 4, #KEYS do
  if redis.call('UNLINK', KEYS[i]) == 1 then
    version, removed = whole(tick(1)), removed + 1
    announce(version, 'om.delete', KEYS[i])
  end
end
return done(version .. ' ' .. whole(removed))
