--[[ renewal.lua — renews the lease of a claim that has a record, and answers for it.
     needs    all other files of lib/
     defines  extendLease, isInItsQueues, recheckAfter, renewClaim, finalAnswers ]]
--- Restarts the lease, unless more than seven eighths of it are left and its process was not found unreachable since. Its
--- first write is one that Redis does not refuse when memory is full.
local function extendLease(claim, locks)
  local lastRenewedAt = claim.expires - claim.ttl
  if nowMs - lastRenewedAt < 0.125 * claim.ttl and not claim.leaseCut and claim.lastMissedAt <= lastRenewedAt then return end
  claim.expires, claim.inbox = nowMs + claim.ttl, inbox
  if not hasWritten then call('PEXPIRE', claim.key, claim.ttl) end
  hasWritten = true
  saveClaim(claim)
  for _, lock in ipairs(locks) do extendIndexTtl(lock[1], claim.ttl) end
  for index = 1, claim.enteredCount do
    local queue = getQueue(locks[index][1], locks[index][2])
    if index < claim.enteredCount or claim.token > 0 then
      call('ZADD', queue.admitted, 'XX', claim.expires .. '', formatEntry(claim, locks[index]))
      extendTtl(queue.admitted, claim.ttl + KEY_TTL_MARGIN)
      queue.usedPermits = nil
    else
      extendTtl(queue.waiting, claim.ttl + KEY_TTL_MARGIN)
    end
  end
end

--- Whether the entries of the claim still exist: they may have been evicted or deleted.
local function isInItsQueues(claim, locks)
  for index = 1, claim.enteredCount do
    local queue = getQueue(locks[index][1], locks[index][2])
    local key = (index < claim.enteredCount or claim.token > 0) and queue.admitted or queue.waiting
    if not call('ZSCORE', key, formatEntry(claim, locks[index])) then return false end
  end
  return true
end

--- The time until a lease ahead of the claim may end (ms); false if the claim is held.
local function recheckAfter(claim, queue)
  if claim.token > 0 then return false end
  if scanBudget == 0 then return 50 end
  loadQueue(queue)
  local front = readFirstWaiting(queue)
  local _, id = parseEntry(front or '')
  local blockerExpires = math.huge
  if front and id ~= claim.id then
    if queue.blocker ~= front then
      local blockingClaim = firstLiveWaiting(queue)
      loadQueue(queue)
      queue.blocker, queue.blockerExpires = queue.firstWaiting, blockingClaim and blockingClaim.expires or nowMs
    end
    blockerExpires = queue.blockerExpires
  end
  local recheckAt = math.min(nowMs + claim.ttl, queue.firstExpiry, blockerExpires)
  if inGracePeriod then recheckAt = math.min(recheckAt, graceEndsAt) end
  return math.max(recheckAt - nowMs, 1)
end

--- Renews a claim and, if it waits, admits what fits in its queue: it may be granted now. Returns its answer.
local function renewClaim(claim, locks)
  if claim.ended then return encodeNone(claim.ended) end
  if claim.state == 'r' then return encodeNone('revoked') end
  if claim.expires <= nowMs then return encodeNone('expired') end
  if not isInItsQueues(claim, locks) then
    removeClaim(claim, locks)
    call('DEL', claim.key)
    return encodeNone()
  end
  extendLease(claim, locks)
  if claim.token == 0 then
    admitQueue(getQueue(locks[claim.enteredCount][1], locks[claim.enteredCount][2]))
    claim = readClaim(claim.bucket, claim.id)
    if not isLive(claim) then return encodeNone() end
  end
  return encodeAnswer(claim, recheckAfter(claim, getQueue(locks[claim.enteredCount][1], locks[claim.enteredCount][2])))
end

--- Admits waiting claims in the queues that claims have left. A claim granted so gets no push, so its earlier answer is replaced.
local function finalAnswers(answers, claims)
  admitTouched()
  for index, claim in ipairs(claims) do
    local held = grantedHere[claim.id]
    if held and string.sub(answers[index], 1, 1) == 'w' then answers[index] = encodeAnswer(held, false) end
  end
  return answers
end
