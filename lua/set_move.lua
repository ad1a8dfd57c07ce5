-- set_move: move a member from one set to another of the same namespace.
--
-- INCLUDE time ledger mutation header keeping
-- KEYS source       set  the present set
-- KEYS destination  set  the target set
-- ARGV member  blob  the encoded value
--
-- RETURNS `<version> <1|0>`: whether it existed and has moved, version 0 if not
-- FAILS   CLOSED, STALE, WRONGTYPE
local source, destination, member = KEYS[4], KEYS[5], ARGV[6]
if is_unknown(1) or is_unknown(2) then return 'UNKNOWN' end
if is_cold(1) or is_cold(2) then return 'COLD' end
if redis.call('SMOVE', source, destination, member) == 0 then return '0 0' end
local version = tick(2)
keep_element(1, 'set', member)
keep_element(2, 'set', member, '')
if keep_change then
  keep_change(1, whole(version), '0')
  keep_change(2, whole(version + 1), '0')
end
announce(whole(version), 'srem', source)
announce(whole(version + 1), 'sadd', destination)
return done(whole(version + 1) .. ' 1')
