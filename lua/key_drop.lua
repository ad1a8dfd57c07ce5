-- key_drop: forget the copy of a key whose newer state the durable tier has: the server was set back in time.
--
-- KEYS state    string  the key's state
-- KEYS keys...  any     the key, or what lies beside it
--
-- RETURNS 1
for i = 1, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 1
