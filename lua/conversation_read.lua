-- conversation_read: read a page of a conversation's entries; begin its lifetime anew if each use does that.
--
-- INCLUDE time conversation_log
-- KEYS head       hash  the conversation
-- ARGV mode       text  `last`, `after` or `around`
-- ARGV reference  text  the id or version of an entry (`after`: empty: from the oldest entry)
-- ARGV limit      int   most entries
-- ARGV renews     0|1   1: begin the lifetime anew here; 0: the caller does that by a change, so that the durable tier knows
--
-- RETURNS revision, number of entries in the log, position of the first entry of the page, 1 if the caller has to begin the
--         lifetime anew, a list of the entries; nil if the conversation does not exist; `A` if the entry is not in it
-- FAILS   WRONGTYPE
local mode, reference, limit, renews = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

-- Most conversations are plain (see `conversation.lua`), and most reads are of their newest entries.
if mode == 'last' then
  local plain, revision, length, segment = unpack(redis.call('HMGET', KEYS[1], 'plain', 'revision', 'length', 'segment'))
  if plain and plain ~= '0' then
    local log = base_of(KEYS[1]) .. '.log:' .. segment
    if is_behind(plain) then revision, length = progress_of(log) end
    return { revision, whole(length), whole(math.max(length - limit, 0)), '0', range(log, -limit, -1) }
  end
end

-- Other reads need functions that most do without.
--
-- INCLUDE conversation_ids conversation
local head = head_of(KEYS[1])
if not head then return nil end
local links, from, SELDOM = links_of(head), 0, 16
if mode == 'last' then
  from = math.max(head.length - limit, 0)
elseif mode == 'after' and is_version(reference) and not position_of_id(head, links, reference) then
  -- By its version, the place of an entry is known even if the entry was removed.
  from = count_until(head, links, reference)
elseif reference ~= '' then
  local position = position_of(head, links, reference)
  if not position then return 'A' end
  from = mode == 'after' and position + 1 or math.max(position - math.floor(limit / 2), 0)
end
local is_due = 0
if head.renews == '1' and renews == '0' then
  -- Each renewal is a change, so small ones are left out.
  local before = tonumber(head.ends)
  renew(head)
  is_due = (tonumber(head.ends) - before) * SELDOM > tonumber(head.ttl_ms) and 1 or 0
elseif head.renews == '1' then
  renew(head)
  set_field(head.key, 'ends', head.ends)
  apply_end(head)
end
local page = collect(head, links, from, math.min(from + limit, head.length), {})
return { head.revision, whole(head.length), whole(from), whole(is_due), page }
