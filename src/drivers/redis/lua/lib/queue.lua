--[[ queue.lua — the queue of a key: who is admitted, who waits, and the form in which that is kept.
     needs    prelude.lua, grace.lua, records.lua, claims.lua
     defines  ALL_PERMITS, KEY_TTL_MARGIN, scanBudget, hasFailed, queues, touchedQueues, getQueue, readClaimIn, loadQueue, sumPermits, fits, firstExpiry,
              peekWaiting, hasWaiting, isEmpty, markTouched, addAdmitted, removeAdmitted, updateLease, removeWaiting, enqueue,
              issueNumber, saveForm, saveForms

     The form is a function of the queue, and `saveForms` writes it at the end of a call for each queue that was loaded:
           no claim is admitted, none waits                      free: no field "k:<key>"
           exactly one is admitted, whose claim has one key      thin: the record of the claim, with "1" if claims wait
           anything else                                         full: "F", the admitted entries in their sorted set
     Invariants
     - While a key is not in full form its sorted set of admitted entries counts for nothing, whatever is in it.
     - In thin form the sorted set of waiting entries counts only if the record says that claims wait. The entry is
       added before the record says so, and a queue that Redis expired counts as empty.
     - An entry counts only with the record of a claim that lives, is in this queue, and waits or is admitted there.
     - The sum of permits is that of those admitted now: it is computed again whenever one has left.
     - Numbers (tokens and arrivals) of a bucket rise, even if the clock steps back, and are issued once. ]]
local ALL_PERMITS = 1073741824 -- a claim with all permits: no other claim fits beside it
local KEY_TTL_MARGIN = 1000 -- ms by which a set outlives the leases in it: the leases decide, not the expiry of Redis
local queues = {} -- by key
local loadedQueues = {} -- in the order of loading
local touchedQueues = {}
local staleSets = {} -- queues that are not in full form any more
local hasFailed = false -- an execution in this call has failed: it may have changed sorted sets, and not written the forms
local scanBudget = 2000

local function getQueue(bucket, key)
  local queue = queues[key]
  if not queue then
    local prefix = namePrefix .. '{' .. bucket .. '}:'
    queue = {
      bucket = bucket, key = key, hash = hashName(bucket), field = 'k:' .. key,
      admittedKey = prefix .. 'a:' .. key, waitingKey = prefix .. 'w:' .. key,
      stored = nil, -- the form as it is stored: nil (free), "T0", "T1" or "F"
      isFull = false, -- whether the admitted entries are in their sorted set
      holder = nil, -- the claim whose record is in thin form, alive or not
      admitted = nil, -- by owner: entry, permits, end of lease; nil: not loaded
      count = 0, used = nil, -- admitted entries; their permits, nil: to be summed up
      waiting = {}, isWaitingRead = false, -- the first waiting entries, and whether these are all
      isChanged = false, needsAdmission = false,
    }
    queues[key] = queue
  end
  return queue
end

local function addItem(queue, owner, entry, permits, expires)
  if not queue.admitted[owner] then queue.count = queue.count + 1 end
  queue.admitted[owner] = { entry = entry, permits = tonumber(permits), expires = expires }
  queue.used = nil
end

--- The claim with this id, which is in this queue, or nil.
local function readClaimIn(queue, bucket, id)
  local claim = readClaim(bucket, id)
  if claim and claim.count == 1 then claim.locks = { { queue.bucket, queue.key, claim.permits, claim.limit } } end
  return claim
end

--- Loads a key in thin form. A holder whose lease has ended is kept until its record is replaced or removed.
local function loadThin(queue, record)
  local claim = parseRecord(queue.bucket, record)
  queue.stored, queue.holder, queue.isWaitingRead = sub(record, 1, 2), claim, sub(record, 2, 2) == '0'
  claim.place, claim.thinIn, claim.locks = 'k', queue, { { queue.bucket, queue.key, claim.permits, claim.limit } }
  claims[claim.bucket .. claim.id] = claim
  queue.isChanged = claim.isCut or claim.expires <= nowMs
  if claim.expires <= nowMs then return end
  addItem(queue, claim.bucket .. claim.id, formatEntry(claim, claim.locks[1]),
    claim.permits, claim.expires)
end

--- Loads a key in full form: removes admitted entries whose leases have ended.
local function loadFull(queue)
  queue.stored, queue.isFull = 'F', true
  local entries = call('ZRANGE', queue.admittedKey, 0, -1, 'WITHSCORES')
  for index = 1, #entries, 2 do
    local bucket, id, permits, _, ttl = parseEntry(entries[index])
    local expires = tonumber(entries[index + 1])
    if expires <= nowMs then
      call('ZREM', queue.admittedKey, entries[index])
    else
      if expires > nowMs + ttl then
        expires = nowMs + ttl
        makeFirstWrite(queue.hash)
        call('ZADD', queue.admittedKey, expires .. '', entries[index])
      end
      addItem(queue, bucket .. id, entries[index], permits, expires)
    end
  end
  queue.isChanged = queue.count < #entries / 2 or queue.count == 0
end

local function loadQueue(queue)
  if queue.admitted then return end
  queue.admitted = {}
  loadedQueues[#loadedQueues + 1] = queue
  local record = readField(queue.hash, queue.field)
  if not record then
    queue.isWaitingRead = true
  elseif sub(record, 1, 1) == 'T' then
    loadThin(queue, record)
  else
    loadFull(queue)
  end
  queue.isChanged = queue.isChanged or hasFailed
end

local function sumPermits(queue)
  if not queue.used then
    queue.used = 0
    for _, item in pairs(queue.admitted) do queue.used = queue.used + item.permits end
  end
  return queue.used
end

local function fits(queue, permits, limit)
  return sumPermits(queue) + permits <= tonumber(limit)
end

--- When the first lease of those admitted ends (ms).
local function firstExpiry(queue)
  local first = math.huge
  for _, item in pairs(queue.admitted) do first = math.min(first, item.expires) end
  return first
end

--- The waiting entry at this position (1: the first), or nil.
local function peekWaiting(queue, position)
  while #queue.waiting < position and not queue.isWaitingRead do
    local from = #queue.waiting
    local wanted = from == 0 and 2 or 32
    local entries = call('ZRANGE', queue.waitingKey, from, from + wanted - 1)
    for _, entry in ipairs(entries) do queue.waiting[#queue.waiting + 1] = entry end
    queue.isWaitingRead = #entries < wanted
  end
  return queue.waiting[position]
end

local function hasWaiting(queue)
  return queue.hasNewcomer or peekWaiting(queue, 1) ~= nil
end

--- Whether the queue is empty. Valid only after `admitQueue`.
local function isEmpty(queue)
  return queue.count == 0 and not hasWaiting(queue)
end

--- A claim has left this queue: others may be admitted.
local function markTouched(queue)
  if not queue.needsAdmission then touchedQueues[#touchedQueues + 1] = queue end
  queue.needsAdmission = true
end

--- The next number of a bucket.
local function issueNumber(bucket)
  local state = getBucket(bucket)
  state.last = math.max(nowMicros, state.last + 1)
  put(state.hash, 'n', formatInt(state.last))
  return state.last
end

local function addToSet(queue, item, ttl)
  makeFirstWrite(queue.hash)
  addEntry(queue.admittedKey, item.expires .. '', item.entry, ttl + KEY_TTL_MARGIN)
end

--- The holder in thin form whose record is about to be replaced. If its lease has ended it is told so for one ttl; but not
--- in a grace period, in which it may restore its claim: the store may have missed its renewals.
local function dropHolder(queue)
  local holder = queue.holder
  queue.holder = nil
  if not holder or holder.place ~= 'k' or claims[holder.bucket .. holder.id] ~= holder then return end
  local isRevoked = holder.state == 'r'
  if holder.expires <= nowMs and holder.expires + holder.ttl > nowMs and (isRevoked or not inGracePeriod) then
    addTombstone(holder.bucket, holder.id, isRevoked and 'revoked' or 'expired', holder.expires + holder.ttl - nowMs)
  end
end

--- Removes what an earlier full form or a failed execution may have left: in full form it would count.
local function removeStaleEntries(queue)
  -- a needless DEL would be a first write, after which Redis refuses nothing
  if queue.stored ~= 'F' and call('EXISTS', queue.admittedKey) == 1 then call('DEL', queue.admittedKey) end
end

--- Puts the entries in their sorted set, and the claim of the thin form in its own field.
local function makeFull(queue)
  if queue.isFull then return end
  removeStaleEntries(queue)
  local holder = queue.holder
  if holder and queue.admitted[holder.bucket .. holder.id] then
    addToSet(queue, queue.admitted[holder.bucket .. holder.id], holder.ttl)
    holder.place, holder.thinIn = nil, nil
    saveClaim(holder)
  else
    dropHolder(queue)
  end
  queue.isFull, queue.holder, queue.isChanged = true, nil, true
end

--- Admits a claim. `lock`: its permits in this queue. The caller saves the claim.
local function addAdmitted(queue, claim, lock)
  local owner, entry = claim.bucket .. claim.id, formatEntry(claim, lock)
  local isThin = queue.count == 0 and claim.count == 1
  if not isThin then makeFull(queue) end
  addItem(queue, owner, entry, lock[3], claim.expires)
  queue.isChanged = true
  if isThin then
    dropHolder(queue)
    queue.isFull, queue.holder, claim.place, claim.thinIn = false, claim, 'k', queue
  else
    addToSet(queue, queue.admitted[owner], claim.ttl)
  end
end

--- Takes a claim out of those admitted, and returns whether it was there.
local function removeAdmitted(queue, owner)
  local item = queue.admitted[owner]
  if not item then return false end
  queue.admitted[owner], queue.count, queue.used, queue.isChanged = nil, queue.count - 1, nil, true
  if queue.isFull then
    call('ZREM', queue.admittedKey, item.entry)
    hasWritten = true
  end
  return true
end

--- The lease of an admitted claim has changed.
local function updateLease(queue, claim)
  local item = queue.admitted[claim.bucket .. claim.id]
  if not item then return end
  item.expires = claim.expires
  if claim.place == 'k' then
    queue.isChanged = true
  else
    makeFirstWrite(queue.hash)
    call('ZADD', queue.admittedKey, 'XX', claim.expires .. '', item.entry)
    extendTtl(queue.admittedKey, claim.ttl + KEY_TTL_MARGIN)
  end
end

--- Removes a waiting entry, and returns how many there were.
local function removeWaiting(queue, entry)
  for position, known in ipairs(queue.waiting) do
    if known == entry then
      table.remove(queue.waiting, position)
      break
    end
  end
  queue.hasNewcomer, queue.isChanged, hasWritten = nil, true, true
  return call('ZREM', queue.waitingKey, entry)
end

--- Appends an entry to the waiting ones and returns its arrival.
local function enqueue(queue, claim, entry)
  local wasEmpty = queue.isWaitingRead and #queue.waiting == 0
  local arrival = formatInt(issueNumber(queue.bucket))
  makeFirstWrite(queue.hash)
  addEntry(queue.waitingKey, arrival, entry, math.max(DAY, 2 * claim.ttl))
  if queue.isWaitingRead then queue.waiting[#queue.waiting + 1] = entry end
  queue.hasNewcomer, queue.isChanged = true, true
  return arrival, wasEmpty
end

--- The only admitted claim of a queue in full form goes back into the field of its key, if it has one key.
local function makeThin(queue)
  local owner = next(queue.admitted)
  local claim = readClaimIn(queue, sub(owner, 1, 2), sub(owner, 3))
  if not isLive(claim) or claim.count > 1 or claim.token == 0 then return end
  put(queue.hash, 'c:' .. claim.id, false)
  claim.place, claim.thinIn, queue.holder, queue.isFull = 'k', queue, claim, false
  staleSets[#staleSets + 1] = queue
end

--- Puts the form of a queue among the fields to be written.
local function saveForm(queue)
  if not queue.isChanged then return end
  queue.isChanged = false
  if queue.count == 1 and queue.isFull then makeThin(queue) end
  local isWaitedFor = hasWaiting(queue)
  if queue.count == 1 and not queue.isFull then
    queue.stored = isWaitedFor and 'T1' or 'T0'
    put(queue.hash, queue.field, formatRecord(queue.holder, queue.stored))
  else
    dropHolder(queue)
    local form = (queue.count > 0 or isWaitedFor) and 'F' or nil
    if form and not queue.isFull then removeStaleEntries(queue) end
    if form ~= queue.stored then put(queue.hash, queue.field, form or false) end
    queue.stored, queue.isFull = form, form == 'F'
  end
end

--- Writes everything that has changed. Sets that count no more go last: until then their key was in full form.
local function saveForms()
  for _, queue in ipairs(loadedQueues) do saveForm(queue) end
  flush()
  extendHashes()
  for _, queue in ipairs(staleSets) do
    if not queue.isFull then call('DEL', queue.admittedKey) end
  end
end
