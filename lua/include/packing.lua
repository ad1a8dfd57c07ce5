-- packing: announce several changes of a script in packets: up to 16 are one entry of the change stream (see packet.lua).
--
-- A script that makes several changes sets `packet` to a table before the first. More changes in a packet would save little,
-- and the stream is trimmed by entries: it keeps up to 16 times as many changes as it has to. Needs mutation.lua before it.
write_packet = function()
  local version, operation, name = packet[#packet - 2], packet[#packet - 1], packet[#packet]
  if #packet > 3 then
    redis.call('XADD', changes, 'MAXLEN', '~', cap, version .. '-0', 'by', actor, 'changes', table.concat(packet, '\n'))
  elseif version then
    packet = nil
    announce_as(version, operation, name)
  end
  packet = {}
end
