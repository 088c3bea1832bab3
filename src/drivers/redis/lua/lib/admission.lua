--[[ admission.lua — removes claims, admits waiting ones, and skips those whose process does not listen (unreachable
     waiters).
     needs    prelude.lua, names.lua, grace.lua, records.lua, push.lua, codec.lua, work.lua, claims.lua, queue.lua, tokens.lua
     defines  admitQueue, recallHolders, isRecalled, listPlaces, removeClaim, removeUnknown, findClaim, enterQueue,
              firstLiveWaiting, finish

     Invariants
     - Each claim that is admitted fits beside the sum of those admitted at that moment. Waiting ones are admitted by
       `admitQueue`, and by hand_on.lua where the only holder leaves.
     - A claim that is granted, or that advances to its next queue, is admitted in this one. After it has admitted a
       claim, `admitQueue` grants to no unreachable waiter. An unreachable waiter that is granted is first in the queue
       and fits like any other.
     - A grant is written before it is published: see `tryGrant` and decision 0023. The recall of a holder is published
       last.
     - After `admitQueue` no claim that fits is left at the front of the queue, except unreachable ones. ]]
--- constants prelude.lua
--- constants records.lua
local MAX_SKIPPED <const> = 32
local GRACE_FOR_UNREACHABLE_MS <const> = 1000
local admitQueue -- it and `advance` call each other

--- Of its first key: a push names it.
local function formatBucketAndKey(claim)
  return claim.bucket .. claim.locks[1][2]
end

--- A claim waits in this queue: the holders that want to know that are told so. Only granted claims that their process
--- still has: no detached ones, no revoked ones, and none that is on its way through several keys.
local function recallHolders(queue)
  for _, entry in ipairs(queue.recalling > 0 and listAdmitted(queue) or {}) do
    local bucket, id, _, _, _, mark = match(entry, ENTRY)
    if mark == RECALL_MARK then
      local holder = readClaimIn(queue, bucket, id)
      if isLive(holder) and holder.token > 0 and holder.state == ORDINARY then work.recalls[holder.id] = holder end
    end
  end
end

--- Whether another claim waits for a held claim that wants to know it. A detached one does not.
local function isRecalled(claim)
  if not claim.wantsRecall or claim.state ~= ORDINARY then return false end
  for _, lock in ipairs(claim.locks) do
    if hasWaiting(getQueue(lock[1], lock[2])) then return true end
  end
  return false
end

--- The queues that a claim has entered, with its lock in each. In all but the last it is admitted, and in the last when
--- it is granted.
local function listPlaces(claim)
  local places = {}
  for index = 1, claim.enteredCount do
    local lock = claim.locks[index]
    places[index] = {
      queue = getQueue(lock[1], lock[2]), lock = lock, isAdmitted = index < claim.enteredCount or claim.token > 0,
    }
  end
  return places
end

--- Removes a claim from the queues that it has entered, and its record. Returns from how many queues.
local function removeClaim(claim)
  local removedCount = 0
  for _, place in ipairs(listPlaces(claim)) do
    local entry = formatEntry(claim, place.lock)
    if not place.isAdmitted then
      removedCount = removedCount + removeWaiting(place.queue, entry)
    elseif removeAdmitted(place.queue, claim.bucket .. claim.id, entry) then
      removedCount = removedCount + 1
    end
    markTouched(place.queue)
  end
  putListed(claim, false)
  forgetClaim(claim)
  return removedCount
end

--- Removes the entries of a claim without a record: it was evicted, deleted or never made.
local function removeUnknown(request)
  local owner = request.bucket .. request.id
  for _, lock in ipairs(request.locks) do
    local queue = getQueue(lock[1], lock[2])
    local isRemoved = false
    for _, entry in ipairs({ formatEntry(request, lock), formatEntry(request, lock) .. RECALL_MARK }) do -- with or without recall
      isRemoved = removeAdmitted(queue, owner, entry) or isRemoved
      if queue.stored == FULL or queue.stored == AWAITED then isRemoved = removeWaiting(queue, entry) > 0 or isRemoved end
    end
    if isRemoved then markTouched(queue) end
  end
end

--- The claim of a request, or nil.
local function findClaim(request)
  local lock = request.locks[1]
  -- the record of a claim with one key may be that of the key: loading its queue finds it
  if request.count == 1 then getQueue(lock[1], lock[2]) end
  local claim = readClaim(request.bucket, request.id)
  if claim then claim.locks = request.locks end
  return claim
end

--- Whether the claim waits in this queue. A script that ended at a refused command may have left a stale entry.
local function isWaitingIn(queue, claim)
  return isLive(claim) and claim.token == 0 and (claim.count == 1 or claim.locks[claim.enteredCount][2] == queue.key)
end

--- Enters a claim in its next queue, where it waits.
local function enterQueue(queue, claim, lock)
  claim.enteredCount = claim.enteredCount + 1
  if queue.recalling > 0 then peekWaiting(queue, 1) end -- whether it is the first to wait
  local arrival, wasEmpty = enqueue(queue, claim, formatEntry(claim, lock))
  if claim.count > 1 then claim.arrivals = claim.arrivals .. arrival .. ',' end
  if wasEmpty then recallHolders(queue) end
end

--- Admits the claim in this queue and enters it in its next one.
local function advance(queue, claim, entry)
  local locks = claim.locks
  local lock, nextLock = locks[claim.enteredCount], locks[claim.enteredCount + 1]
  local nextQueue = getQueue(nextLock[1], nextLock[2])
  addAdmitted(queue, claim, lock)
  enterQueue(nextQueue, claim, nextLock)
  saveClaim(claim)
  saveForm(queue)
  saveForm(nextQueue)
  flush()
  removeWaiting(queue, entry)
  admitQueue(nextQueue)
end

--- Writes the grant: from now on the claim is held for all other scripts. Its entry still stands among the waiting
--- ones.
local function writeGrant(queue, claim, position)
  local locks = claim.locks
  issueTokens(claim, locks)
  addAdmitted(queue, claim, locks[claim.count])
  if not claim.thinIn then
    saveClaim(claim)
  elseif claim.hasOwnField then
    -- the record of the key counts now; what is left of this one must not look like a waiter
    put(nameKey(claim.bucket, HASH), CLAIM_FIELD .. claim.id, GRANTED_TOMBSTONE)
  end
  peekWaiting(queue, position + 1) -- whether another one waits is a part of the thin form
  dropWaiting(queue, position)
  saveForm(queue)
  flush()
end

--- After a grant: the waiting entry and the former record go.
local function endWaiting(queue, claim, entry)
  call('ZREM', queue.waitingKey, entry)
  if not claim.thinIn then return end
  put(nameKey(claim.bucket, HASH), CLAIM_FIELD .. claim.id, false)
  claim.hasOwnField = false
end

--- Grants a claim in its last queue if its process is reachable, and returns whether it did.
--- A refused command (a permission was revoked) ends the script, and its earlier writes stay. So the grant is written
--- first, in an order in which every partial write is harmless: a counter is too high, or permits count as used by no
--- claim until the lease ends. Removing the waiting entry comes last, and `admitQueue` recognizes a stale one. Only a
--- written grant is published. If no process receives it, it is undone; only that case costs further commands.
local function tryGrant(queue, claim, entry, position)
  if work.answeredHere[claim.id] then
    work.grantedHere[claim.id] = claim
    writeGrant(queue, claim, position)
    endWaiting(queue, claim, entry)
    return true
  end
  if isUnreachable(claim.inbox) then return false end
  writeGrant(queue, claim, position)
  local state = isRecalled(claim) and RECALLED or HELD
  local lease = claim.expires - nowMs
  if push(claim.inbox, joinGrant(claim.id, formatInt(claim.token), claim.tokens, lease, state, formatBucketAndKey(claim))) then
    endWaiting(queue, claim, entry)
    return true
  end
  removeAdmitted(queue, claim.bucket .. claim.id, formatEntry(claim, claim.locks[claim.count]))
  table.insert(queue.waiting, position, entry)
  if claim.thinIn then queue.holder, claim.thinIn = nil, nil end
  claim.token = 0
  saveClaim(claim)
  -- at once: if a later command is refused, the grant that was written would stay
  saveForm(queue)
  flush()
  return false
end

--- Skips a claim whose process is unreachable. If that happens again a second or more later, without a call of the
--- process in between, the claim is removed. Returns whether the claim keeps its entry.
local function skipUnreachable(claim)
  local lastRenewedAt = claim.expires - claim.ttl
  if claim.lastMissedAt > lastRenewedAt and nowMs - claim.lastMissedAt >= GRACE_FOR_UNREACHABLE_MS then
    removeClaim(claim)
    flush() -- at once, with its entry: if a later command is refused, the record would stay
    return false
  end
  if claim.lastMissedAt <= lastRenewedAt then
    claim.lastMissedAt = nowMs
    saveClaim(claim)
  end
  return true
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
  if peekWaiting(queue, 1) ~= first.entry or not fits(queue, first.permits, first.limit) then return end
  local claim = first.claim
  claim.expires = math.min(claim.expires, nowMs + GRACE_FOR_UNREACHABLE_MS)
  for index = 1, claim.enteredCount - 1 do
    local lock = claim.locks[index]
    updateLease(getQueue(lock[1], lock[2]), claim, lock)
  end
  writeGrant(queue, claim, 1)
  endWaiting(queue, claim, first.entry)
end

--- Admits the claims of this queue that fit. Skips unreachable waiters.
function admitQueue(queue)
  local skipped, hasAdmitted = nil, false
  while true do
    if queue.used >= ALL_PERMITS or scanBudget == 0 or inGracePeriod then break end
    if skipped and (#skipped == MAX_SKIPPED or hasAdmitted and blocksSkipped(skipped, queue)) then break end
    local position = skipped and #skipped + 1 or 1
    local entry = peekWaiting(queue, position)
    if not entry then break end
    local bucket, id, permits, limit = match(entry, ENTRY)
    if not fits(queue, permits, limit) then break end
    scanBudget = scanBudget - 1
    local claim = readClaimIn(queue, bucket, id)
    if not isWaitingIn(queue, claim) then
      removeWaiting(queue, entry)
    elseif claim.enteredCount < claim.count then
      advance(queue, claim, entry)
      hasAdmitted = true
    elseif tryGrant(queue, claim, entry, position) then
      hasAdmitted = true
    elseif skipUnreachable(claim) then
      skipped = skipped or {}
      skipped[#skipped + 1] = { claim = claim, entry = entry, permits = permits, limit = limit }
    end
  end
  if skipped and not hasAdmitted then grantUnreachable(queue, skipped[1]) end
  queue.needsAdmission = false
end

--- The first live waiting claim, or nil. `admitQueue` does not read a claim that does not fit, so expired ones are
--- removed here: they must not block the queue.
local function firstLiveWaiting(queue)
  local front = peekWaiting(queue, 1)
  while front do
    local bucket, id = match(front, ENTRY)
    local claim = readClaimIn(queue, bucket, id)
    if isWaitingIn(queue, claim) then return claim end
    removeWaiting(queue, front)
    admitQueue(queue)
    front = peekWaiting(queue, 1)
  end
end

--- Admits waiting claims in the queues that claims have left.
local function admitTouched()
  local index = 1
  while work.touchedQueues[index] and scanBudget > 0 do
    local queue = work.touchedQueues[index]
    if queue.needsAdmission then admitQueue(queue) end
    index = index + 1
  end
end

--- The end of a call: admits what fits, writes what has changed, recalls holders.
local function finish()
  admitTouched()
  saveForms()
  for id, holder in pairs(work.recalls) do
    if holder.token > 0 and work.claims[holder.bucket .. id] == holder then
      push(holder.inbox, joinRecall(id, formatBucketAndKey(holder)))
    end
  end
end
