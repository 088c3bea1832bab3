--[[ birth.lua — has the store forgotten? With the option guardDataLoss the caller names a record that stands in the
     store for ever: "<replication id> <opens at (ms)> <floor> <mark>". The replication id names one uninterrupted reign of
     one master: Redis makes a new one at each start and each promotion. So a record that is missing (all was flushed, or
     an empty start) or bears another id (a restart; a replica that was promoted, which may have missed the last writes,
     also if it is the server that wrote the record, demoted and promoted since) means: from now on for the longest ttl
     there is, claims only line up, and those who hold place their claims again (replace.lua). So nobody is granted over a
     live holder that the store has forgotten. The server is asked for its id in each script: what a client thinks of its
     connection may be wrong.

     Tokens after a promotion. The promoted server's clock may be behind, and the last tokens may not have reached it.
     The mark bounds the tokens of the whole record: no token above it is granted before a higher mark is written. It is
     raised while it is still LEAST ahead of the clock, so a replica has it long before the first token that needs it.
     When the id has changed, tokens go on above the mark that the record has (the floor). In everyday use the exact last
     token decides (tokens.lua): a mark ahead of the clock would hide small steps back of it. ]]
local record, longest = ARGV[3], tonumber(ARGV[4])
local opensAt, tokenFloor, mark = 0, 0, math.huge
local reign -- the replication id
local LEAST, AHEAD = 30000000, 60000000 -- microseconds that the mark is ahead: never less (in use), and when it is raised

--- Writes the record. Refused only for want of memory while nothing is written yet: then the old one stands, and the next
--- call tries again.
local function noteBirth(raised)
  local said = redis.pcall('SET', record, table.concat({ reign, opensAt .. '', text(tokenFloor), text(raised) }, ' '))
  if not said.err then mark = raised end
end

if record ~= '' then
  local info = call('INFO', 'replication')
  local at = string.find(info, 'master_replid:', 1, true)
  reign = string.sub(info, at + 14, at + 53)
  local known, opens, floor, marked = match(call('GET', record) or '', '^(%x+) (%d+) (%d+) (%d+)$')
  opensAt, tokenFloor, mark = tonumber(opens or 0), tonumber(floor or 0), tonumber(marked or 0)
  -- a replica that may be written has the id and the record of its master
  local isSame = known == reign and string.find(info, 'role:master', 1, true) ~= nil
  if not isSame then tokenFloor = mark end
  -- more than the longest ttl is left only if the clock has stepped back since
  local isPause = not isSame or opensAt > now + longest
  if isPause then opensAt = now + longest end
  if isPause or mark - LEAST < micros then
    noteBirth(math.max(mark, math.max(micros, tokenFloor) + AHEAD))
  end
end

--- Do claims only line up now?
local breathing = opensAt > now
