--[[ claim.lua — makes a claim, or finds it by its id, and answers whether it is held. One round trip.
     KEYS  1 any name in the bucket of its first key: routes the call
     ARGV  root, inbox, run record, longest ttl, the claim (id, ttl, count, locks), tokens, floor, waits ("1" or "0"), label,
           locks as JSON
     Returns "h <token> <tokens> <remaining ttl> <store ms>" | "w <remaining ttl> <recheck> <store ms>" | "n [end reason]" |
           "p <end of grace period (ms)> <store ms>": not granted because of a grace period | "f": the floor is more than a
           day ahead of the clock. In a grace period "h" and "w" end with another field, its end (ms)
     Cost  O(admitted + expired entries) for each queue ]]
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
-- the fast path: the claim is new and the queue is empty
local isAlone = claim.count == 1 and call('EXISTS', claim.key, line.admitted, line.waiting) == 0
local isTooHigh = claim.floor > micros + DAY * 1000

--- Saves the new claim, which is held or waiting by now.
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
  return fits(of, hold[3], hold[4]) -- removing an expired claim at the front may have admitted those behind it
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
    -- unknown is not busy: the holder of its keys may not have restored its claim yet
    if breathing and not isHeld then return 'p ' .. opensAt .. ' ' .. clock end
    return none()
  end
end

-- Redis may refuse the first write (for lack of memory): nothing is written then
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
-- list the claim also under the keys whose queues it has not entered yet
if claim.count > 1 and claim.token == 0 then
  for _, hold in ipairs(holds) do enlist(hold[1], hold[2] .. '\0' .. claim.bucket .. claim.id, claim.ttl) end
end
return settledAnswers({ answer(claim, recheckOf(claim, line)) }, { claim })[1]
