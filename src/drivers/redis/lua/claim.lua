--[[ claim.lua — places a claim, or finds it by its id, and says where it stands. One trip.
     KEYS  1 any name of the bucket of its first key: where to send the call
     ARGV  root, inbox, birth record, longest ttl, the claim (id, ttl, count, holds), tokens, floor, waits ("1" or "0"), label, holds as JSON
     Gives "h <token> <tokens> <ttl left> <store ms>" | "w <ttl left> <recheck> <store ms>" | "n [how it ended]" |
           "p <grants again at (ms)> <store ms>": not granted, since nothing new is | "f":
           the floor is more than a day ahead of the clock. A store that has forgotten adds to "h" and "w" from when
           on it grants again (ms)
     Work  O(admitted + run out) a line ]]
--- include lib/prelude.lua
--- include lib/grace.lua
--- include lib/records.lua
--- include lib/queues.lua
--- include lib/tokens.lua
--- include lib/arguments.lua
--- include lib/answers.lua

local asked, holds = takeClaim()
local claim = {
  key = asked.key, bucket = asked.bucket, id = asked.id, expires = now + asked.ttl, token = 0, stage = 0, missed = 0,
  ttl = asked.ttl, tokens = take(), floor = tonumber(take()), count = asked.count, state = 'o', inbox = inbox,
  rest = '', holds = holds,
}
local waits, label, json = take(), take(), take()
local line = lineOf(claim.bucket, holds[1][2])
-- the most usual call: it is new, and nobody has a place
local isAlone = claim.count == 1 and call('EXISTS', claim.key, line.admitted, line.waiting) == 0
local isTooHigh = claim.floor > micros + DAY * 1000

--- The new claim is noted, which holds or waits by now.
local function note(arrived)
  claim.rest = restOf(now, waits, arrived, json, label)
  save(claim)
  if string.byte(claim.id, -1) % 8 == 0 then
    --- include lib/prune_index.lua
  end
end

if isAlone and not isTooHigh and not breathing then
  claim.stage = 1
  empty(line)
  enlist(line.bucket, line.name, claim.ttl)
  admit(line, placeOf(claim, holds[1]), holds[1][3], claim.expires, claim.ttl)
  grant(claim, line, mint(claim, line))
  note(arrive(0))
  return answer(claim, false)
end

--- include lib/entries.lua
--- include lib/enqueue.lua
--- include lib/admission.lua
--- include lib/recheck.lua
--- include lib/renewal.lua

asking[claim.id] = true
local known = read(claim.bucket, claim.id)
if known then
  return settledAnswers({ renew(known, holds) }, { claim })[1]
end
if isTooHigh then return 'f' end

local function isFree(of, hold)
  settle(of)
  if breathing or not fits(of, hold[3], hold[4]) or frontAlive(of) then return false end
  return fits(of, hold[3], hold[4]) -- those behind a dead one in front may have been admitted meanwhile
end

if waits == '0' then
  local isRefused, isHeld
  for _, hold in ipairs(holds) do
    local of = lineOf(hold[1], hold[2])
    isRefused = not isFree(of, hold) or isRefused
    isHeld = of.used + hold[3] > tonumber(hold[4]) or isHeld
  end
  if isRefused then
    settleAll()
    -- unknown is not busy: whoever holds its keys may not have placed its claim again yet
    if breathing and not isHeld then return 'p ' .. opensAt .. ' ' .. clock end
    return none()
  end
end

-- the first write is one that Redis refuses if it must (for want of memory), while nothing is written
local arrived = {}
while claim.token == 0 do
  claim.stage = claim.stage + 1
  local hold = holds[claim.stage]
  local place = placeOf(claim, hold)
  line = lineOf(hold[1], hold[2])
  if not isFree(line, hold) then
    arrived[claim.stage] = queue(line, place, claim.ttl)
    break
  end
  if isIdle(line) then enlist(line.bucket, line.name, claim.ttl) end
  admit(line, place, hold[3], claim.expires, claim.ttl)
  arrived[claim.stage] = arrive(0)
  if claim.stage == claim.count then grant(claim, line, mint(claim, line)) end
end
note(table.concat(arrived, ','))
-- where it is wanted but does not stand yet
if claim.count > 1 and claim.token == 0 then
  for _, hold in ipairs(holds) do enlist(hold[1], hold[2] .. '\0' .. claim.bucket .. claim.id, claim.ttl) end
end
return settledAnswers({ answer(claim, recheckOf(claim, line)) }, { claim })[1]
