--[[ claim.lua — makes a claim, or finds it by its id, and answers whether it is held. One round trip.
     KEYS  1 any name in the bucket of its first key: routes the call
     ARGV  the four of lib/prelude.lua, the claim (id, ttl, count, locks), tokens, floor, waits ("1" or "0"), label,
           locks as JSON
     Returns "h <token> <tokens> <remaining ttl> <store ms>" | "w <remaining ttl> <recheck> <store ms>" | "n [end reason]" |
           "p <end of grace period (ms)> <store ms>": not granted because of a grace period | "f": the floor is more than a
           day ahead of the clock. In a grace period "h" and "w" end with another field, its end (ms)
     Cost  O(admitted + expired entries) for each queue ]]
--- include lib/prelude.lua
--- include lib/grace.lua
--- include lib/records.lua
--- include lib/queue.lua
--- include lib/tokens.lua
--- include lib/answers.lua

local request, locks = nextClaim()
local claim = {
  key = request.key, bucket = request.bucket, id = request.id, expires = nowMs + request.ttl, token = 0,
  enteredCount = 0, lastMissedAt = 0, ttl = request.ttl, tokens = nextArg(), floor = tonumber(nextArg()), count = request.count,
  state = 'o', inbox = inbox, details = '', locks = locks,
}
local waitFlag, label, json = nextArg(), nextArg(), nextArg()
local queue = getQueue(claim.bucket, locks[1][2])
-- the fast path: the claim is new and the queue is empty
local isUncontended = claim.count == 1 and call('EXISTS', claim.key, queue.admitted, queue.waiting) == 0
local isFloorTooHigh = claim.floor > nowMicros + DAY * 1000

--- Saves the new claim, which is held or waiting by now.
local function saveNew(arrivals)
  claim.details = packDetails(nowMs, waitFlag, arrivals, json, label)
  saveClaim(claim)
  if string.byte(claim.id, -1) % 8 ~= 0 then return end
  -- remove a few stale members of the index: keys whose entries expired without a script noticing
  for _, member in ipairs(call('ZRANDMEMBER', bucketKey(claim.bucket, 'i'), 8)) do
    local owner, id = match(member, '^%Z+%z(..)(%w+)$')
    local remaining = id and call('EXISTS', keyName(owner, 'c', id))
      or call('EXISTS', keyName(claim.bucket, 'a', member), keyName(claim.bucket, 'w', member))
    if remaining == 0 then call('ZREM', bucketKey(claim.bucket, 'i'), member) end
  end
end

if isUncontended and not isFloorTooHigh and not inGracePeriod then
  claim.enteredCount = 1
  markEmpty(queue)
  addToIndex(queue.bucket, queue.key, claim.ttl)
  addAdmitted(queue, formatEntry(claim, locks[1]), locks[1][3], claim.expires, claim.ttl)
  setToken(claim, queue, nextToken(claim, queue))
  saveNew(nextArrival(0))
  return encodeAnswer(claim, false)
end

--- include lib/entries.lua
--- include lib/admission.lua
--- include lib/renewal.lua

answeredHere[claim.id] = true
local existing = readClaim(claim.bucket, claim.id)
if existing then
  return finalAnswers({ renewClaim(existing, locks) }, { claim })[1]
end
if isFloorTooHigh then return 'f' end

local function canAdmit(queue, lock)
  admitQueue(queue)
  if inGracePeriod or not fits(queue, lock[3], lock[4]) or firstLiveWaiting(queue) then return false end
  return fits(queue, lock[3], lock[4]) -- removing an expired claim at the front may have admitted those behind it
end

if waitFlag == '0' then
  local isRefused, isHeld
  for _, lock in ipairs(locks) do
    local queue = getQueue(lock[1], lock[2])
    isRefused = not canAdmit(queue, lock) or isRefused
    isHeld = queue.usedPermits + lock[3] > tonumber(lock[4]) or isHeld
  end
  if isRefused then
    admitTouched()
    -- unknown is not busy: the holder of its keys may not have restored its claim yet
    if inGracePeriod and not isHeld then return 'p ' .. graceEndsAt .. ' ' .. nowMsText end
    return encodeNone()
  end
end

-- Redis may refuse the first write (for lack of memory): nothing is written then
local arrivals = {}
while claim.token == 0 do
  claim.enteredCount = claim.enteredCount + 1
  local lock = locks[claim.enteredCount]
  local entry = formatEntry(claim, lock)
  queue = getQueue(lock[1], lock[2])
  if not canAdmit(queue, lock) then
    arrivals[claim.enteredCount] = enqueue(queue, entry, claim.ttl)
    break
  end
  if isEmpty(queue) then addToIndex(queue.bucket, queue.key, claim.ttl) end
  addAdmitted(queue, entry, lock[3], claim.expires, claim.ttl)
  arrivals[claim.enteredCount] = nextArrival(0)
  if claim.enteredCount == claim.count then setToken(claim, queue, nextToken(claim, queue)) end
end
saveNew(table.concat(arrivals, ','))
-- list the claim also under the keys whose queues it has not entered yet
if claim.count > 1 and claim.token == 0 then
  for _, lock in ipairs(locks) do addToIndex(lock[1], lock[2] .. '\0' .. claim.bucket .. claim.id, claim.ttl) end
end
return finalAnswers({ encodeAnswer(claim, recheckAfter(claim, queue)) }, { claim })[1]
