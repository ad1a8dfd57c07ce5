-- outbox_replay: put dead letters back among what the durable tier is to get, each at most once.
--
-- KEYS dead    stream  dead letters
-- KEYS outbox  stream  what the tier has not got yet
-- ARGV ids...  text  which letters, in the order in which they go back
--
-- RETURNS how many went back
local dead, outbox = KEYS[1], KEYS[2]
local moved = 0
for i = 1, #ARGV do
  local letter = redis.call('XRANGE', dead, ARGV[i], ARGV[i])[1]
  -- Fields: name, its text, body, its text, reason, its text; others are of another client, and stay.
  if letter and letter[2][1] == 'name' and letter[2][3] == 'body' then
    redis.call('XADD', outbox, '*', letter[2][2], letter[2][4])
    redis.call('XDEL', dead, ARGV[i])
    moved = moved + 1
  end
end
return moved
