-- outbox_replay: move dead letters back to the outbox, each at most once.
--
-- KEYS dead    stream  dead letters
-- KEYS outbox  stream  changes that the tier does not have yet
-- ARGV ids...  text  ids of the letters, in the order of the move
--
-- RETURNS the number of moved letters
local dead, outbox = KEYS[1], KEYS[2]
local moved = 0
for i = 1, #ARGV do
  local letter = redis.call('XRANGE', dead, ARGV[i], ARGV[i])[1]
  -- Fields: name, its text, body, its text, reason, its text; other entries are of another client, and stay.
  if letter and letter[2][1] == 'name' and letter[2][3] == 'body' then
    redis.call('XADD', outbox, '*', letter[2][2], letter[2][4])
    redis.call('XDEL', dead, ARGV[i])
    moved = moved + 1
  end
end
return moved
