--[[ grace.lua — detects a loss of data. With the option guardDataLoss the caller names a run record, which never
     expires: "<replication id> <end of grace period (ms)> <floor> <mark>". The replication id names one uninterrupted run of
     one master: Redis creates a new one at each start and each promotion. A grace period begins if the record is missing
     (after a flush or an empty start) or has another id (after a restart; or after a promotion, since the replica may have
     missed the last writes, even if it is the server that wrote the record, was demoted and promoted again). During the grace
     period, which lasts for the longest ttl, claims only enter queues, and holders restore their claims (restore.lua). So
     the store grants no lock that a live holder still has. Each script asks the server for its id, because what a client
     knows about its connection may be outdated. See decisions 0017 and 0025.

     Tokens after a loss of data. The counters may be lost, and the clock may be behind that of the earlier server. The mark
     bounds the tokens of a record: no token above it is granted before a higher mark is written. When the id has changed,
     new tokens continue above the mark found in the record (the floor). Otherwise the exact last token decides (tokens.lua):
     a mark ahead of the clock would hide small backward steps of the clock.

     Invariants. "The clock" is that of the server; "the foremost clock" is that of the server whose clock is farthest ahead.
     A clock that steps back counts as another clock. A clock that steps forward is not covered (it also ends leases). A
     caller's own floor and long token ranges come on top.
     - Each script leaves the mark at least LEAST above every token granted so far; and also above the clock and the floor,
       if a grant is possible within LEAST. So replicas have the mark long before the first token that needs it: tokens
       granted within LEAST after a script are below the mark that this script left.
     - A mark is never more than AHEAD above the foremost clock, and no token is above the foremost clock when it is granted.
       The reason: the mark is raised to AHEAD above the clock or a token; it is raised to LEAST above the floor only LEAST
       before the grace period ends; and no grace period ends before the clock has passed the floor or AHEAD has elapsed.
       Marks do not add up either: a restart within a grace period finds the mark that the restart before it found, or one
       that the clock has raised.
     - Hence tokens rise
       - whatever is lost (everything, or any number of the last writes), if no clock is behind another by more than the
         longest ttl: no grace period is shorter, so at its end the clock has passed every token granted before;
       - whatever the clocks are, if only the last writes of a run are lost: those after a script of the run that ran at most
         LEAST before its last grant.
     - No grace period is longer than MOST, whatever the clocks are: the wait for the clock to pass the floor ends there. ]]
local record, longest = ARGV[3], tonumber(ARGV[4])
local opensAt, tokenFloor, mark = 0, 0, math.huge
local reign -- the replication id
local LEAST = math.max(2000, longest / 2) * 1000 -- microseconds: the mark is always at least so far ahead
local AHEAD = 2 * LEAST -- microseconds: the mark is raised to so far ahead
local MOST = AHEAD / 1000 + 1 -- milliseconds

--- Writes the run record. Redis refuses this only for lack of memory, and only as a first write: then the old record stays
--- and the next call tries again.
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
  -- a writable replica has the id and the record of its master
  local isSame = known == reign and string.find(info, 'role:master', 1, true) ~= nil
  if not isSame then tokenFloor = mark end
  -- the remaining time exceeds MOST only if the clock has stepped back
  local isPause = not isSame or opensAt > now + MOST
  if isPause then opensAt = math.max(now + longest, math.min(math.ceil(tokenFloor / 1000), now + MOST)) end
  local isNear = opensAt * 1000 <= micros + LEAST -- tokens above the floor may be granted within LEAST
  local reached = isNear and math.max(micros, tokenFloor) or micros
  local isLow = mark - LEAST < reached
  if isPause or isLow then noteBirth(isLow and math.max(micros + AHEAD, reached + LEAST) or mark) end
end

--- Whether a grace period is running: claims enter queues, and none is granted.
local breathing = opensAt > now
