--[[ admission.lua — admits waiting claims, and skips those whose process does not listen (unreachable waiters).
     needs    prelude.lua, grace.lua, records.lua, queue.lua, entries.lua, tokens.lua
     defines  grantedHere, push, fits, admitQueue, firstLiveWaiting, admitTouched

     Invariants
     - Only `admitQueue` admits waiting claims, and each fits beside the sum of those admitted at that moment. A claim that
       leaves invalidates the sum (`markTouched`), and `loadQueue` computes it again before it is used.
     - A claim that is granted, or that advances to its next queue, is admitted in this one. After it has admitted a claim,
       `admitQueue` grants to no unreachable waiter. An unreachable waiter that is granted is first in the
       queue and fits like any other.
     - A grant is written before it is published: see `tryGrant` and decision 0023.
     - After `admitQueue` no claim that fits is left at the front of the queue, except unreachable ones. ]]
local MAX_SKIPPED = 32
local GRACE_FOR_UNREACHABLE_MS = 1000
local unreachableInboxes = {} -- by inbox, as far as this script has found out; it cannot change while the script runs
local grantedHere = {} -- by id: claims that this call answers for and grants after it has computed their answers
local admitQueue -- it and `advance` call each other

--- The caller's own process gets the push in the reply, if the reply has room for pushes (`ownPushes`).
local function getsPushInReply(claim)
  return ownPushes and claim.inbox == inbox
end

--- In a Cluster a fail-over may leave a subscription on a replica, where it receives everything and is not counted. So an
--- empty ping counts the subscribers first, and no grant is published that is not counted. Elsewhere the count comes with
--- the message itself.
local function isUnreachable(claim)
  if getsPushInReply(claim) then return false end
  local claimInbox = claim.inbox
  if unreachableInboxes[claimInbox] == nil and string.find(claimInbox, '{', 1, true) then
    unreachableInboxes[claimInbox] = redis.pcall('SPUBLISH', claimInbox, '') == 0
  end
  return unreachableInboxes[claimInbox]
end

--- Pushes a message to the claim's process and returns whether it is reachable. An error of Redis (no permission to
--- publish) does not count as unreachable. Messages are not replicated: a replica may have a left-over subscription.
local function push(claim, message)
  if getsPushInReply(claim) then
    ownPushes[#ownPushes + 1] = message
    return true
  end
  if isUnreachable(claim) then return false end
  local claimInbox = claim.inbox
  if string.find(claimInbox, '{', 1, true) then
    redis.pcall('SPUBLISH', claimInbox, message)
    return true
  end
  redis.set_repl(redis.REPL_NONE)
  unreachableInboxes[claimInbox] = redis.pcall('PUBLISH', claimInbox, message) == 0
  redis.set_repl(redis.REPL_ALL)
  return not unreachableInboxes[claimInbox]
end

--- After its first write a script is not refused for lack of memory. So the first write is a ZREM that changes nothing.
local function makeFirstWrite(queue)
  if not hasWritten then call('ZREM', queue.waiting, '') end
  hasWritten = true
end

--- Whether the claim waits in this queue. A script that ended at a refused command may have left a stale entry.
local function isWaitingIn(queue, claim)
  return isLive(claim) and claim.token == 0 and (claim.count == 1 or readLocks(claim)[claim.enteredCount][2] == queue.key)
end

--- Admits the claim in this queue and enters it in its next one.
local function advance(queue, claim, entry, permits)
  local lock = readLocks(claim)[claim.enteredCount + 1]
  local nextQueue = getQueue(lock[1], lock[2])
  loadQueue(nextQueue)
  makeFirstWrite(queue)
  addAdmitted(queue, entry, permits, claim.expires, claim.ttl)
  claim.enteredCount = claim.enteredCount + 1
  local arrival = enqueue(nextQueue, formatEntry(claim, lock), claim.ttl)
  local placedAt, waitFlag, arrivals, json, offset = struct.unpack(DETAILS_FORMAT, claim.details)
  claim.details = packDetails(placedAt, waitFlag, arrivals .. ',' .. arrival, json, string.sub(claim.details, offset))
  saveClaim(claim)
  removeWaiting(queue, entry)
  admitQueue(nextQueue)
end

--- Writes the grant: from now on the claim is held for all other scripts.
local function writeGrant(queue, claim, entry, permits)
  makeFirstWrite(queue)
  setToken(claim, queue, nextToken(claim, queue))
  addAdmitted(queue, entry, permits, claim.expires, claim.ttl)
  saveClaim(claim)
end

--- Grants a claim in its last queue if its process is reachable, and returns whether it did.
--- A refused command (a permission was revoked) ends the script, and its earlier writes stay. So the grant is written first,
--- in an order in which every partial write is harmless: a counter is too high, or permits count as used by no claim until
--- the lease ends. Removing the waiting entry comes last, and `admitQueue` recognizes a stale one. Only a written grant is
--- published. If no process receives it, it is undone; only that case costs further commands.
local function tryGrant(queue, claim, entry, permits)
  if answeredHere[claim.id] then
    grantedHere[claim.id] = claim
    writeGrant(queue, claim, entry, permits)
    removeWaiting(queue, entry)
    return true
  end
  if isUnreachable(claim) then return false end
  writeGrant(queue, claim, entry, permits)
  if push(claim, claim.id .. ' ' .. formatInt(claim.token) .. ' ' .. claim.tokens .. ' ' .. claim.expires - nowMs) then
    removeWaiting(queue, entry)
    return true
  end
  call('ZREM', queue.admitted, entry)
  queue.usedPermits = nil
  claim.token, claim.needsSave = 0, true
  return false
end

--- Skips a claim whose process is unreachable. If that happens again a second or more later, without a call of the
--- process in between, the claim is removed. Returns whether the claim keeps its entry.
local function skipUnreachable(queue, claim, permits, limit)
  local lastRenewedAt = claim.expires - claim.ttl
  if claim.lastMissedAt > lastRenewedAt and nowMs - claim.lastMissedAt >= GRACE_FOR_UNREACHABLE_MS then
    removeClaim(claim, claim.count > 1 and readLocks(claim) or { { queue.bucket, queue.key, permits, limit } })
    call('DEL', claim.key)
    return false
  end
  local isFirst = claim.lastMissedAt <= lastRenewedAt
  if isFirst then claim.lastMissedAt = nowMs end
  if isFirst or claim.needsSave then saveClaim(claim) end
  return true
end

local function fits(queue, permits, limit)
  return queue.usedPermits + permits <= tonumber(limit)
end

--- Whether a claim that was skipped does not fit any more, because of grants behind it.
local function blocksSkipped(skipped, queue)
  for _, item in ipairs(skipped) do
    if not fits(queue, item.permits, item.limit) then return true end
  end
  return false
end

--- All claims that fit are unreachable: grants to the first one for a second. A renewal restores the full lease.
local function grantUnreachable(queue, first)
  loadQueue(queue)
  if readFirstWaiting(queue) ~= first.entry or not fits(queue, first.permits, first.limit) then return end
  local claim = first.claim
  claim.expires = math.min(claim.expires, nowMs + GRACE_FOR_UNREACHABLE_MS)
  for index = 1, claim.enteredCount - 1 do
    local lock = readLocks(claim)[index]
    local entered = getQueue(lock[1], lock[2])
    call('ZADD', entered.admitted, 'XX', claim.expires .. '', formatEntry(claim, lock))
    entered.usedPermits = nil
  end
  writeGrant(queue, claim, first.entry, first.permits)
  removeWaiting(queue, first.entry)
end

--- Admits the claims of this queue that fit. Skips unreachable waiters.
function admitQueue(queue)
  local skipped, hasAdmitted = nil, false
  while true do
    loadQueue(queue)
    if queue.usedPermits >= ALL_PERMITS or scanBudget == 0 or inGracePeriod then break end
    if skipped and (#skipped == MAX_SKIPPED or hasAdmitted and blocksSkipped(skipped, queue)) then break end
    local entry = readFirstWaiting(queue)
    if skipped then entry = call('ZRANGE', queue.waiting, #skipped, #skipped)[1] end
    if not entry then break end
    local bucket, id, permits, limit = parseEntry(entry)
    if not fits(queue, permits, limit) then break end
    scanBudget = scanBudget - 1
    local claim = readClaim(bucket, id)
    if not isWaitingIn(queue, claim) then
      removeWaiting(queue, entry)
    elseif claim.enteredCount < claim.count then
      advance(queue, claim, entry, permits)
      hasAdmitted = true
    elseif tryGrant(queue, claim, entry, permits) then
      hasAdmitted = true
    elseif skipUnreachable(queue, claim, permits, limit) then
      skipped = skipped or {}
      skipped[#skipped + 1] = { claim = claim, entry = entry, permits = permits, limit = limit }
    end
  end
  if skipped and not hasAdmitted then grantUnreachable(queue, skipped[1]) end
  queue.needsAdmission = false
end

--- The first live waiting claim, or nil. `admitQueue` does not read a claim that does not fit, so expired ones are removed here:
--- they must not block the queue.
local function firstLiveWaiting(queue)
  local front = readFirstWaiting(queue)
  while front do
    local bucket, id = parseEntry(front)
    local claim = readClaim(bucket, id)
    if isWaitingIn(queue, claim) then return claim end
    removeWaiting(queue, front)
    admitQueue(queue)
    front = readFirstWaiting(queue)
  end
end

--- Admits waiting claims in the queues that claims have left.
local function admitTouched()
  local index = 1
  while touchedQueues[index] and scanBudget > 0 do
    local queue = touchedQueues[index]
    if queue.needsAdmission then admitQueue(queue) end
    if isEmpty(queue) then call('ZREM', bucketKey(queue.bucket, 'i'), queue.key) end
    index = index + 1
  end
end
