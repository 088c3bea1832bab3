--[[ entries.lua — reads the entries of a queue, adds waiting ones, and removes claims.
     needs    prelude.lua, records.lua, queue.lua
     defines  answeredHere, scanBudget, touchedQueues, ownPushes, loadQueue, readFirstWaiting, isEmpty, removeWaiting,
              markTouched, removeClaim, enqueue, removeUnknown ]]
local answeredHere = {} -- ids of the claims that this call answers for: they need no push
local scanBudget = 2000
local touchedQueues = {}
local ownPushes -- pushes for the caller's own process, returned in the reply; nil: the reply has no room for them

--- Removes expired admitted entries and sums up the permits of the rest.
local function loadQueue(queue)
  if queue.usedPermits then return end
  markEmpty(queue)
  local entries = call('ZRANGE', queue.admitted, 0, -1, 'WITHSCORES')
  for index = 1, #entries, 2 do
    local _, _, permits, _, ttl = parseEntry(entries[index])
    local expires = tonumber(entries[index + 1])
    if expires <= nowMs then
      call('ZREM', queue.admitted, entries[index])
    else
      if expires > nowMs + ttl then
        expires = nowMs + ttl
        call('ZADD', queue.admitted, expires .. '', entries[index])
      end
      queue.usedPermits = queue.usedPermits + permits
      queue.firstExpiry = math.min(queue.firstExpiry, expires)
    end
  end
end

--- The first waiting entry, or false.
local function readFirstWaiting(queue)
  if queue.firstWaiting == nil then queue.firstWaiting = call('ZRANGE', queue.waiting, '0', '0')[1] or false end
  return queue.firstWaiting
end

--- Whether the queue is empty. Valid only after `admitQueue`.
local function isEmpty(queue)
  return queue.usedPermits == 0 and not readFirstWaiting(queue)
end

--- Removes a waiting entry.
local function removeWaiting(queue, entry)
  queue.firstWaiting = nil
  return call('ZREM', queue.waiting, entry)
end

--- A claim has left this queue: its sum must be computed again, and others may be admitted.
local function markTouched(queue)
  queue.usedPermits = nil
  if not queue.needsAdmission then touchedQueues[#touchedQueues + 1] = queue end
  queue.needsAdmission = true
end

--- As markTouched, after a claim with all permits: most likely no other entry is admitted, and one command checks that.
local function markTouchedExclusive(queue)
  markTouched(queue)
  local remaining = call('EXISTS', queue.admitted, queue.waiting, queue.waiting) -- waiting entries count twice
  if remaining % 2 == 0 then markEmpty(queue) end
  if remaining < 2 then queue.firstWaiting = false end
end

--- Removes a claim from the queues that it has entered and returns from how many. The first write frees memory.
local function removeClaim(claim, locks)
  local removedCount = 0
  hasWritten = true
  for index = 1, claim.enteredCount do
    local lock = locks[index]
    local queue, entry = getQueue(lock[1], lock[2]), formatEntry(claim, lock)
    local isHeld = index < claim.enteredCount or claim.token > 0
    local removed = isHeld and call('ZREM', queue.admitted, entry) or not isHeld and removeWaiting(queue, entry)
    if isHeld and tonumber(lock[3]) == ALL_PERMITS then markTouchedExclusive(queue) else markTouched(queue) end
    removedCount = removedCount + removed
  end
  if claim.count > 1 then
    for index = 1, claim.count do
      call('ZREM', bucketKey(locks[index][1], 'i'), locks[index][2] .. '\0' .. claim.bucket .. claim.id)
    end
  end
  return removedCount
end

--- Appends an entry to the waiting ones and returns its arrival.
local function enqueue(queue, entry, ttl)
  if isEmpty(queue) then addToIndex(queue.bucket, queue.key, ttl) end
  local lastArrival = readFirstWaiting(queue) and call('ZRANGE', queue.waiting, -1, -1, 'WITHSCORES')[2]
  local arrival = nextArrival(lastArrival or 0)
  call('ZADD', queue.waiting, arrival, entry)
  extendTtl(queue.waiting, ttl + KEY_TTL_MARGIN)
  queue.firstWaiting = queue.firstWaiting or entry
  return arrival
end

--- Removes the entries of a claim without a record: it was evicted, deleted or never made. The first write frees memory.
local function removeUnknown(claim, locks)
  hasWritten = true
  for _, lock in ipairs(locks) do
    local queue, entry = getQueue(lock[1], lock[2]), formatEntry(claim, lock)
    if call('ZREM', queue.admitted, entry) + removeWaiting(queue, entry) > 0 then markTouched(queue) end
  end
end
