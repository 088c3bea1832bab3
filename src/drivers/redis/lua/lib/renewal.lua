--[[ renewal.lua — makes claims, renews the leases of those that have a record, and answers for them.
     needs    prelude.lua, grace.lua, codec.lua, work.lua, claims.lua, queue.lua, tokens.lua, answers.lua, admission.lua
     defines  extendLease, isInItsQueues, renewClaim, createClaim, makeClaim, finalAnswer ]]
--- constants prelude.lua
--- constants records.lua
--- constants queue.lua

--- Restarts the lease, unless more than seven eighths of it are left and its process was not found unreachable since.
local function extendLease(claim)
  local lastRenewedAt = claim.expires - claim.ttl
  if nowMs - lastRenewedAt < 0.125 * claim.ttl and not claim.isCut and claim.lastMissedAt <= lastRenewedAt then return end
  claim.expires, claim.inbox = nowMs + claim.ttl, inbox
  saveClaim(claim)
  for _, lock in ipairs(claim.locks) do extendBucket(lock[1], claim.ttl) end
  for _, place in ipairs(listPlaces(claim)) do
    if place.isAdmitted then
      updateLease(place.queue, claim, place.lock)
    else
      extendTtl(place.queue.waitingKey, math.max(DAY, 2 * claim.ttl))
    end
  end
end

--- Whether the entries of the claim still exist: they may have been evicted or deleted.
local function isInItsQueues(claim)
  for _, place in ipairs(listPlaces(claim)) do
    local queue, lock = place.queue, place.lock
    if place.isAdmitted then
      if not isAdmitted(queue, claim, lock) then return false end
    else
      if not call('ZSCORE', queue.waitingKey, formatEntry(claim, lock)) then return false end
      if queue.behind == NONE and #queue.waiting == 0 then -- the field of the key was deleted
        queue.behind, queue.isChanged = UNREAD, true
      end
    end
  end
  return true
end

--- The time until a lease ahead of the claim may end (ms). While one claim holds all permits, only its end counts: what
--- is in front of the queue is looked at by the script that ends that claim. The first waiter asks early if a holder is
--- to be recalled.
local function recheckAfter(claim, queue)
  if scanBudget == 0 then return 50 end
  local recheckAt = math.min(nowMs + claim.ttl, firstExpiry(queue))
  local isFront = false
  if queue.used < ALL_PERMITS then
    local front = firstLiveWaiting(queue)
    isFront = front == claim
    if front and not isFront then recheckAt = math.min(recheckAt, front.expires) end
    recheckAt = math.min(recheckAt, firstExpiry(queue))
  end
  if queue.recalling > 0 then
    local _, frontId = match(peekWaiting(queue, 1) or '', ENTRY)
    isFront = isFront or frontId == claim.id
    if isFront then recheckAt = math.min(recheckAt, nowMs + math.max(FRONT_RECHECK_MS, nowMs - claim.createdAt)) end
  end
  if inGracePeriod then recheckAt = math.min(recheckAt, graceEndsAt) end
  return math.max(recheckAt - nowMs, 1)
end

--- The queue that a claim has entered last: where it waits, if it is not granted.
local function getLastQueue(claim)
  local lock = claim.locks[claim.enteredCount]
  return getQueue(lock[1], lock[2])
end

local function answerFor(claim)
  if claim.token > 0 then return encodeAnswer(claim, false, isRecalled(claim)) end
  return encodeAnswer(claim, recheckAfter(claim, getLastQueue(claim)))
end

--- Lengthens the token range of a held claim to this many. Not if a later token may have been issued on one of its
--- keys, since the range would not be consecutive: while a claim holds all permits of a key, none is.
local function extendTokens(claim, count)
  if claim.token == 0 or claim.state ~= ORDINARY or count <= claim.tokens then return end
  local lastToken = claim.token + claim.tokens - 1
  for _, lock in ipairs(claim.locks) do
    if tonumber(lock[3]) < ALL_PERMITS and getBucket(lock[1]).last ~= lastToken then return end
  end
  claim.tokens = count
  claim.body = (string.gsub(claim.body, UP_TO_TOKENS, '%1 ' .. count, 1))
  raiseLast(claim.locks, claim.token + count - 1)
  saveClaim(claim)
end

--- Renews a claim and, if it waits, admits what fits in its queue: it may be granted now. Returns its answer.
local function renewClaim(claim, tokenCount)
  if claim.ended then return encodeNone(claim.ended) end
  if claim.state == REVOKED then return encodeNone('revoked') end
  if claim.expires <= nowMs then return encodeNone('expired') end
  if not isInItsQueues(claim) then
    removeClaim(claim)
    return encodeNone()
  end
  extendLease(claim)
  if tokenCount then extendTokens(claim, tonumber(tokenCount)) end
  if claim.token == 0 then
    local queue = getLastQueue(claim)
    admitQueue(queue)
    if work.claims[claim.bucket .. claim.id] ~= claim then return encodeNone() end
    if claim.token == 0 then recallHolders(queue) end
  end
  return answerFor(claim)
end

--- Whether nothing in front of a new claim prevents its admission.
local function canAdmit(queue, lock)
  admitQueue(queue)
  if inGracePeriod or not fits(queue, lock[3], lock[4]) or firstLiveWaiting(queue) then return false end
  return fits(queue, lock[3], lock[4]) -- removing an expired claim at the front may have admitted those behind it
end

--- A claim that does not wait: its answer if it is refused.
local function refuse(request)
  local isRefused, isHeld
  for _, lock in ipairs(request.locks) do
    local queue = getQueue(lock[1], lock[2])
    isRefused = not canAdmit(queue, lock) or isRefused
    isHeld = not fits(queue, lock[3], lock[4]) or isHeld
  end
  if not isRefused then return nil end
  -- unknown is not busy: the holder of its keys may not have restored its claim yet
  if inGracePeriod and not isHeld then return 'p ' .. graceEndsAt .. ' ' .. nowMsText end
  return encodeNone()
end

local function createClaim(request)
  return {
    bucket = request.bucket, id = request.id, expires = nowMs + request.ttl, token = 0, createdAt = nowMs, lastMissedAt = 0,
    enteredCount = 0, state = ORDINARY, body = request.body, ttl = request.ttl, tokens = request.tokens, floor = request.floor,
    waits = request.waits, wantsRecall = request.wantsRecall, json = request.json, arrivals = '', inbox = inbox, count = request.count,
    permits = request.locks[1][3], limit = request.locks[1][4], locks = request.locks,
  }
end

--- Makes a claim, or finds it by its id, and returns its answer.
local function makeClaim(request)
  local existing = findClaim(request)
  if existing then return renewClaim(existing) end
  if not acceptsFloor(request.floor, request.locks) then return 'f' end
  local refusal = not request.waits and refuse(request)
  if refusal then return refusal end
  local claim = createClaim(request)
  for _, lock in ipairs(request.locks) do extendBucket(lock[1], claim.ttl) end
  for _, lock in ipairs(request.locks) do
    local queue = getQueue(lock[1], lock[2])
    if not canAdmit(queue, lock) then
      enterQueue(queue, claim, lock)
      break
    end
    claim.enteredCount = claim.enteredCount + 1
    if claim.enteredCount == claim.count then issueTokens(claim, request.locks) end
    if claim.enteredCount < claim.count then claim.arrivals = claim.arrivals .. formatInt(issueNumber(lock[1])) .. ',' end
    addAdmitted(queue, claim, lock)
  end
  saveClaim(claim)
  -- list the claim also under the keys whose queues it has not entered yet
  if claim.token == 0 then putListed(claim, '') end
  return answerFor(claim)
end

--- A claim that was granted after its answer was computed gets no push: its answer is replaced.
local function finalAnswer(answer, id)
  local held = work.grantedHere[id]
  if held and sub(answer, 1, 1) == 'w' then return encodeAnswer(held, false, isRecalled(held)) end
  return answer
end
