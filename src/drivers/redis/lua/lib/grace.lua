--[[ grace.lua — has the store forgotten? With the option guardDataLoss the caller names a record that stands in the
     store for ever: "<replication id> <opens at (ms)> <floor> <mark>". The replication id names one uninterrupted reign of
     one master: Redis makes a new one at each start and each promotion. So a record that is missing (all was flushed, or
     an empty start) or bears another id (a restart; a replica that was promoted, which may have missed the last writes,
     also if it is the server that wrote the record, demoted and promoted since) means: a grace period begins. For the longest
     ttl there is, claims only line up, and those who hold place their claims again (restore.lua). So nobody is granted over
     a live holder that the store has forgotten. The server is asked for its id in each script: what a client thinks of its
     connection may be wrong.

     Tokens of a store that forgot. Its counters may be lost, and its clock may be behind that of the server before it. The
     mark bounds the tokens of the whole record: no token above it is granted before a higher mark is written. When the id
     has changed, tokens go on above the mark that was found (the floor). In everyday use the exact last token decides
     (tokens.lua): a mark ahead of the clock would hide small steps back of it.

     Invariants. "The clock" is that of the server; "the foremost clock" that of the servers which is the farthest ahead. One
     that has stepped back counts as another clock; one that steps forward is not provided for (it ends leases, too). What a
     caller's own floor or long runs of tokens add comes on top.
     - Each script leaves the mark at least LEAST above every token granted so far, and above the clock and the floor if a
       grant is possible within LEAST. So a replica has it long before the first token that needs it: what is granted within
       LEAST after a script is below the mark that this script left.
     - A mark is never more than AHEAD above the foremost clock, and no token is above the foremost clock when it is granted.
       For it is raised to AHEAD above the clock or a token; to LEAST above the floor only LEAST before the grace period
       ends; and no grace period ends before the clock has passed the floor or AHEAD has gone by. Nor do marks add up: a
       restart within a grace period finds the mark that the restart before it found, or one that the clock has raised.
     - Hence tokens rise
       - whatever is lost (all, or any number of the last writes), if no clock is behind another by more than the longest
         ttl: no grace period is shorter, so at its end the clock has passed every token granted before;
       - whatever the clocks say, if lost are only the last writes of a reign: those after a script of it that ran at most
         LEAST before its last grant.
     - No grace period is longer than MOST, whatever the clocks say: the wait for the clock to pass the floor ends there. ]]
local record, longest = ARGV[3], tonumber(ARGV[4])
local opensAt, tokenFloor, mark = 0, 0, math.huge
local reign -- the replication id
local LEAST = math.max(2000, longest / 2) * 1000 -- microseconds that the mark is ahead: never less (in use)
local AHEAD = 2 * LEAST -- and when it is raised
local MOST = AHEAD / 1000 + 1 -- milliseconds

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
  -- more than MOST is left only if the clock has stepped back since
  local isPause = not isSame or opensAt > now + MOST
  if isPause then opensAt = math.max(now + longest, math.min(math.ceil(tokenFloor / 1000), now + MOST)) end
  local isNear = opensAt * 1000 <= micros + LEAST -- tokens above the floor may be granted soon
  local reached = isNear and math.max(micros, tokenFloor) or micros
  local isLow = mark - LEAST < reached
  if isPause or isLow then noteBirth(isLow and math.max(micros + AHEAD, reached + LEAST) or mark) end
end

--- Do claims only line up now?
local breathing = opensAt > now
