--[[ restore.lua — restores claims that were held when the store lost data, with their tokens. One round trip.
     KEYS  1 routes the call
     ARGV  the four of lib/prelude.lua, number of claims, then for each: the claim, tokens, floor, waits, label,
           locks as JSON, and its token
     Returns one answer for each claim, as claim.lua
     A claim that is waiting at the store is restored, too: a promoted replica may have missed its grant. The script trusts
     the caller: the admission rule was checked when the claim was granted. Only if the store has lost a part of its data and
     still has claims in conflict with a restored one, those with the lowest tokens end, until all that are left in the queue
     could have been granted in some order (as in lock-table/key-queue.ts: if any order works, ascending limits do).
     Cost  O(claims + admitted), and O(admitted) without a command for each claim that ends ]]
--- include lib/prelude.lua
--- include lib/grace.lua
--- include lib/records.lua
--- include lib/queue.lua
--- include lib/entries.lua
--- include lib/tokens.lua
--- include lib/admission.lua
--- include lib/answers.lua
--- include lib/renewal.lua

--- The admitted claims of a queue, in ascending order of limit; a claim that waits for a later key has no token yet.
local function readHolders(queue)
  local found = {}
  for _, entry in ipairs(call('ZRANGE', queue.admitted, 0, -1)) do
    local bucket, id, permits, limit = parseEntry(entry)
    local claim = readClaim(bucket, id)
    if isLive(claim) then
      found[#found + 1] = { claim = claim, permits = permits, limit = limit }
    end
  end
  table.sort(found, function(left, right) return tonumber(left.limit) < tonumber(right.limit) end)
  return found
end

--- The index of the claim that must end; nil if all fit.
local function findConflict(holders)
  local usedPermits, lowestIndex = 0, 1
  for index, holder in ipairs(holders) do
    if holder.claim.token < holders[lowestIndex].claim.token then lowestIndex = index end
    if usedPermits + holder.permits > tonumber(holder.limit) then return lowestIndex end
    usedPermits = usedPermits + holder.permits
  end
end

local function removeConflicts(queue)
  local holders = readHolders(queue)
  local index = findConflict(holders)
  while index do
    local loser = table.remove(holders, index)
    local claim = loser.claim
    local lock = { queue.bucket, queue.key, loser.permits, loser.limit }
    removeClaim(claim, claim.count > 1 and readLocks(claim) or { lock })
    call('DEL', claim.key)
    index = findConflict(holders)
  end
end

local function restoreClaim(claim, rest)
  call('DEL', claim.key) -- Redis never refuses this first write
  hasWritten = true
  claim.details = rest
  for _, lock in ipairs(claim.locks) do
    local queue = getQueue(lock[1], lock[2])
    loadQueue(queue)
    if isEmpty(queue) then addToIndex(queue.bucket, queue.key, claim.ttl) end
    addAdmitted(queue, formatEntry(claim, lock), lock[3], claim.expires, claim.ttl)
  end
  saveClaim(claim)
  local last = claim.token + claim.tokens - 1
  recordSpent(last)
  for _, lock in ipairs(claim.locks) do
    local key = bucketKey(lock[1], 'n')
    if tonumber(call('GET', key) or 0) < last then call('SET', key, formatInt(last), 'PX', 2 * DAY) end
  end
end

local restored = {}
for index = 1, tonumber(nextArg()) do
  local request, locks = nextClaim()
  local claim = {
    key = request.key, bucket = request.bucket, id = request.id, expires = nowMs + request.ttl, token = 0,
    enteredCount = request.count, lastMissedAt = 0, ttl = request.ttl, tokens = tonumber(nextArg()),
    floor = tonumber(nextArg()), count = request.count, state = 'o', inbox = inbox, details = '', locks = locks,
  }
  local waitFlag, label, json, token = nextArg(), nextArg(), nextArg(), nextArg()
  claim.token = tonumber(token)
  restored[index] = claim
  answeredHere[claim.id] = true
  local existing = readClaim(claim.bucket, claim.id)
  local isWaiting = existing and not existing.ended and existing.token == 0
  if inGracePeriod and claim.token <= nowMicros + DAY * 1000 and (not existing or isWaiting) then
    if existing then removeClaim(existing, locks) end
    restoreClaim(claim, packDetails(nowMs, waitFlag, string.rep(token .. ',', claim.count), json, label))
  end
end
-- only after all are restored: of two claims in conflict the later one may stay. Each queue is checked once
for _, claim in ipairs(restored) do
  for _, lock in ipairs(claim.locks) do
    local queue = queues[lock[2]]
    if queue and not queue.isChecked then
      queue.isChecked = true
      removeConflicts(queue)
    end
  end
end
local answers = {}
for index, claim in ipairs(restored) do
  local existing = readClaim(claim.bucket, claim.id)
  answers[index] = existing and renewClaim(existing, claim.locks) or encodeNone()
end
return finalAnswers(answers, restored)
