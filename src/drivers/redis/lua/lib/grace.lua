--[[ grace.lua — detects a loss of data, and delays grants after it.
     needs    prelude.lua
     defines  graceEndsAt, lastBeforeLoss, tokenCeiling, MIN_LEAD, RAISED_LEAD, runRecordKey, replicationId,
              inGracePeriod

     Without the option guardDataLoss it calls nothing. With it the caller names a run record, which never
     expires: "<replication id> <end of grace period (ms)> <last before the loss> <ceiling>". The replication id names
     one uninterrupted run of one master: Redis creates a new one at each start and each promotion. A grace period
     begins if the record is missing (after a flush or an empty start) or has another id (after a restart; or after a
     promotion, since the replica may have missed the last writes, even if it is the server that wrote the record, was
     demoted and promoted again). During the grace period, which lasts for the longest ttl, claims only enter queues,
     and holders restore their claims (restore.lua). So the store grants no lock that a live holder still has. Each
     script asks the server for its id, because what a client knows about its connection may be outdated. See decisions
     0017 and 0025.

     Tokens after a loss of data. The counters may be lost, and the clock may be behind that of the earlier server. The
     ceiling bounds the tokens of a record: no token above it is granted before a higher ceiling is written. When the id
     has changed, new tokens continue above the ceiling found in the record: no token granted before the loss was above
     it. Otherwise the exact last token decides (tokens.lua): a ceiling ahead of the clock would hide small backward
     steps of the clock.

     Invariants. "The clock" is that of the server; "the foremost clock" is that of the server whose clock is farthest
     ahead. A clock that steps back counts as another clock. A clock that steps forward is not covered (it also ends
     leases). A caller's own floor and long token ranges come on top.
     - Each script leaves the ceiling at least MIN_LEAD above every token granted so far; and also above the clock and
       the last token before the loss, if a grant is possible within MIN_LEAD. So replicas have the ceiling long before
       the first token that needs it: tokens granted within MIN_LEAD after a script are below the ceiling that this
       script left.
     - A ceiling is never more than RAISED_LEAD above the foremost clock, and no token is above the foremost clock when
       it is granted. The reason: the ceiling is raised to RAISED_LEAD above the clock or a token; it is raised to
       MIN_LEAD above the last token before the loss only MIN_LEAD before the grace period ends; and no grace period
       ends before the clock has passed that token or RAISED_LEAD has elapsed. Ceilings do not add up either: a restart
       within a grace period finds the ceiling that the restart before it found, or one that the clock has raised.
     - Hence tokens rise
       - whatever is lost (everything, or any number of the last writes), if no clock is behind another by more than the
         longest ttl: no grace period is shorter, so at its end the clock has passed every token granted before;
       - whatever the clocks are, if only the last writes of a run are lost: those after a script of the run that ran at
         most MIN_LEAD before its last grant.
     - No grace period is longer than MAX_GRACE_PERIOD, whatever the clocks are: the wait for the clock to pass the last
       token before the loss ends there. ]]
local graceEndsAt, lastBeforeLoss, tokenCeiling = 0, 0, math.huge
local MIN_LEAD, RAISED_LEAD, MAX_GRACE_PERIOD = 0, 0, 0
local runRecordKey, replicationId

if ARGV[3] ~= '' then
  local maxTtlText, recordKey = match(ARGV[3], '^(%d+) (.*)$')
  local maxTtl = tonumber(maxTtlText)
  runRecordKey = recordKey
  MIN_LEAD = math.max(2000, maxTtl / 2) * 1000 -- microseconds: the ceiling is always at least so far ahead
  RAISED_LEAD = 2 * MIN_LEAD -- microseconds: the ceiling is raised to so far ahead
  MAX_GRACE_PERIOD = RAISED_LEAD / 1000 + 1 -- milliseconds
  local info = call('INFO', 'replication')
  local index = string.find(info, 'master_replid:', 1, true)
  replicationId = string.sub(info, index + 14, index + 53)
  local recordedId, recordedGraceEnd, recordedLast, recordedCeiling =
    match(call('GET', runRecordKey) or '', '^(%x+) (%d+) (%d+) (%d+)$')
  graceEndsAt, lastBeforeLoss = tonumber(recordedGraceEnd or 0), tonumber(recordedLast or 0)
  tokenCeiling = tonumber(recordedCeiling or 0)
  -- a writable replica has the id and the record of its master
  local isSameRun = recordedId == replicationId and string.find(info, 'role:master', 1, true) ~= nil
  if not isSameRun then lastBeforeLoss = tokenCeiling end
  -- the remaining time exceeds MAX_GRACE_PERIOD only if the clock has stepped back
  local startsGrace = not isSameRun or graceEndsAt > nowMs + MAX_GRACE_PERIOD
  if startsGrace then
    graceEndsAt = math.max(nowMs + maxTtl, math.min(math.ceil(lastBeforeLoss / 1000), nowMs + MAX_GRACE_PERIOD))
  end
  -- then tokens above the last before the loss may be granted within MIN_LEAD
  local endsSoon = graceEndsAt * 1000 <= nowMicros + MIN_LEAD
  local tokenBound = endsSoon and math.max(nowMicros, lastBeforeLoss) or nowMicros
  local isCeilingLow = tokenCeiling - MIN_LEAD < tokenBound
  if startsGrace or isCeilingLow then
    local ceiling = isCeilingLow and math.max(nowMicros + RAISED_LEAD, tokenBound + MIN_LEAD) or tokenCeiling
    local record = { replicationId, graceEndsAt .. '', formatInt(lastBeforeLoss), formatInt(ceiling) }
    -- Redis refuses this only for lack of memory: then the old record stays and the next call tries again
    if not try('SET', runRecordKey, table.concat(record, ' ')).err then tokenCeiling = ceiling end
  end
end

--- Whether a grace period is running: claims enter queues, and none is granted.
local inGracePeriod = graceEndsAt > nowMs
