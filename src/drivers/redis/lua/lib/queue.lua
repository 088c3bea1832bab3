--[[ queue.lua — the queue of a key: who is admitted, who waits, and the form in which that is kept.
     needs    prelude.lua, names.lua, grace.lua, codec.lua, work.lua, claims.lua
     defines  readClaimIn, getQueue, fits, firstExpiry, listAdmitted, isAdmitted, peekWaiting, hasWaiting, dropWaiting,
              markTouched, issueNumber, addAdmitted, removeAdmitted, updateLease, removeWaiting, enqueue, saveForm,
              saveForms

     The form is a function of the queue (records.lua), and `saveForms` writes it at the end of a call for each queue
     that was loaded.

     Invariants
     - While a key is not in full form its sorted set of admitted entries counts for nothing, whatever is in it.
     - In thin form the sorted set of waiting entries counts only if the record says that claims wait. The entry is
       added before the record says so, and a queue that Redis expired counts as empty.
     - An entry counts only with the record of a claim that lives, is in this queue, and waits or is admitted there.
     - What is in use is known without reading the holders: the totals of the admitted entries (records.lua) are members
       of their set. One ZADD writes an entry and the totals with it, so a script that ends anywhere leaves at most an
       entry that was removed and is still counted, or one that is counted twice; then the number of members shows it,
       and the next script counts again.
     - Numbers (tokens and arrivals) of a bucket rise, even if the clock steps back, and are issued once. ]]
--- constants prelude.lua
--- constants records.lua
-- what is behind the waiting entries that are known
local UNREAD <const> = 'unread' -- perhaps others
local SOME <const> = 'some' -- others, one at least
local NONE <const> = 'none'

-- ms by which a set outlives the leases in it: the leases decide, not the expiry of Redis
local KEY_TTL_MARGIN <const> = 1000
--- Counts an entry in (1) or out (-1).
local function count(queue, entry, sign)
  local _, _, permits, _, _, mark = match(entry, ENTRY)
  queue.count, queue.used = queue.count + sign, queue.used + sign * permits
  if mark == RECALL_MARK then queue.recalling = queue.recalling + sign end
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
  queue.stored, queue.holder = match(record, FORM), claim
  queue.behind = queue.stored == LONE and NONE or UNREAD
  claim.thinIn, claim.locks = queue, { { queue.bucket, queue.key, claim.permits, claim.limit } }
  work.claims[claim.bucket .. claim.id] = claim
  queue.isChanged = claim.isCut or claim.expires <= nowMs
  if claim.expires <= nowMs then return end
  count(queue, formatEntry(claim, claim.locks[1]), 1)
end

local function writeTotals(queue)
  makeFirstWrite(queue.hash)
  call('ZADD', queue.admittedKey, formatTotals(queue))
  queue.isMiscounted = false
end

--- Counts the admitted entries one by one: removes those whose leases have ended, and cuts those that are too long.
local function recount(queue)
  local entries = call('ZRANGE', queue.admittedKey, 0, -1, 'WITHSCORES')
  queue.count, queue.used, queue.recalling, queue.first = 0, 0, 0, math.huge
  for index = 1, #entries, 2 do
    local entry, expires = entries[index], tonumber(entries[index + 1])
    local _, _, _, _, ttl = match(entry, ENTRY)
    if ttl and expires <= nowMs then
      call('ZREM', queue.admittedKey, entry)
    elseif ttl then
      if expires > nowMs + ttl then
        expires = nowMs + ttl
        makeFirstWrite(queue.hash)
        call('ZADD', queue.admittedKey, expires .. '', entry)
      end
      count(queue, entry, 1)
      queue.first = math.min(queue.first, expires)
    end
  end
  queue.isChanged, queue.isMiscounted = true, true
  if queue.count > 0 then writeTotals(queue) end
end

--- Removes the entries whose leases have ended.
local function removeEnded(queue)
  for _, entry in ipairs(call('ZRANGE', queue.admittedKey, '(0', nowMs .. '', 'BYSCORE')) do
    call('ZREM', queue.admittedKey, entry)
    count(queue, entry, -1)
  end
  queue.first, queue.isChanged, queue.isMiscounted, work.hasWritten = nil, true, true, true
end

--- Loads a key in full form: its totals, and the entry that ends first.
local function loadFull(queue)
  queue.stored, queue.isFull = FULL, true
  local entries = call('ZRANGE', queue.admittedKey, 0, TOTALS, 'WITHSCORES')
  if not entries[1] then
    queue.isChanged = true -- no claim is admitted
    return
  end
  local totals = parseTotals(entries)
  -- after a backward step of the clock leases may be too long
  if hasFailed or not totals or totals.time > nowMs or call('ZCARD', queue.admittedKey) ~= totals.count + TOTALS then
    recount(queue)
    return
  end
  queue.count, queue.used, queue.recalling = totals.count, totals.used, totals.recalling
  queue.first = tonumber(entries[2 * TOTALS + 2] or math.huge)
  queue.isChanged = queue.count == 0
  if queue.first <= nowMs then removeEnded(queue) end
end

local function load(queue)
  local record = readField(queue.hash, queue.field)
  if not record then
    queue.behind = NONE
  elseif match(record, IS_THIN) then
    loadThin(queue, record)
  else
    loadFull(queue)
  end
  queue.isChanged = queue.isChanged or hasFailed
end

--- The queue of a key, as it is stored or was changed since.
local function getQueue(bucket, key)
  local queue = work.queues[key]
  if not queue then
    queue = {
      bucket = bucket, key = key, hash = nameKey(bucket, HASH), field = KEY_FIELD .. key,
      admittedKey = nameKey(bucket, ADMITTED .. key), waitingKey = nameKey(bucket, WAITING .. key),
      stored = nil, -- the form as it is stored: nil (free), LONE, AWAITED or FULL
      isFull = false, -- whether the admitted entries are in their sorted set
      holder = nil, -- the claim whose record is in thin form, alive or not
      -- of the admitted entries: how many, their permits, how many want to be recalled; in full form when the first
      -- ends (nil: to be read)
      count = 0, used = 0, recalling = 0, first = math.huge,
      waiting = {}, behind = UNREAD, -- the first waiting entries, as far as they are known
      needsAdmission = false, -- a claim has left: it is among the touched queues
      -- what is written at the end: the form, and its totals, which are not those in the set
      isChanged = false, isMiscounted = false,
    }
    work.queues[key] = queue
    work.loadedQueues[#work.loadedQueues + 1] = queue
    load(queue)
  end
  return queue
end

--- Restates the admission rule, for the entry behind those that are admitted.
local function fits(queue, permits, limit)
  return queue.used + permits <= tonumber(limit)
end

--- When the first lease of those admitted ends (ms).
local function firstExpiry(queue)
  if not queue.isFull then return queue.count == 1 and queue.holder.expires or math.huge end
  if not queue.first then
    queue.first = tonumber(call('ZRANGE', queue.admittedKey, TOTALS, TOTALS, 'WITHSCORES')[2] or math.huge)
  end
  return queue.first
end

--- The admitted entries. Costs as much as there are: only for what is rare.
local function listAdmitted(queue)
  if queue.isFull then return call('ZRANGE', queue.admittedKey, TOTALS, -1) end
  return queue.count == 1 and { formatEntry(queue.holder, queue.holder.locks[1]) } or {}
end

--- Whether this queue is in thin form, and the claim with this bucket and id is its holder.
local function isThinHolder(queue, owner)
  return not queue.isFull and queue.count == 1 and queue.holder.bucket .. queue.holder.id == owner
end

--- Whether the claim is admitted. `lock`: its permits in this queue.
local function isAdmitted(queue, claim, lock)
  if queue.isFull then return call('ZSCORE', queue.admittedKey, formatEntry(claim, lock)) ~= false end
  return isThinHolder(queue, claim.bucket .. claim.id)
end

--- The waiting entry at this position (1: the first), or nil.
local function peekWaiting(queue, position)
  while #queue.waiting < position and queue.behind ~= NONE do
    local from = #queue.waiting
    local wanted = from == 0 and 2 or 32
    local entries = call('ZRANGE', queue.waitingKey, from, from + wanted - 1)
    for _, entry in ipairs(entries) do queue.waiting[#queue.waiting + 1] = entry end
    if #entries < wanted then queue.behind = NONE end
  end
  return queue.waiting[position]
end

local function hasWaiting(queue)
  return queue.behind == SOME or peekWaiting(queue, 1) ~= nil
end

--- An entry waits no more, at this position if it is a known one. It may have been the one that was behind them.
local function dropWaiting(queue, position)
  if position then table.remove(queue.waiting, position) end
  if queue.behind == SOME then queue.behind = UNREAD end
end

--- A claim has left this queue: others may be admitted.
local function markTouched(queue)
  if not queue.needsAdmission then work.touchedQueues[#work.touchedQueues + 1] = queue end
  queue.needsAdmission = true
end

--- The next number of a bucket.
local function issueNumber(bucket)
  local numbers = getBucket(bucket)
  numbers.last = math.max(nowMicros, numbers.last + 1)
  put(numbers.hash, LAST_FIELD, formatInt(numbers.last))
  return numbers.last
end

--- Adds an entry that is counted already.
local function addToSet(queue, entry, claim)
  makeFirstWrite(queue.hash)
  addEntry(queue.admittedKey, claim.ttl + KEY_TTL_MARGIN, claim.expires .. '', entry, formatTotals(queue))
  queue.first, queue.isMiscounted = queue.first and math.min(queue.first, claim.expires), false
end

--- The holder in thin form whose record is about to be replaced. If its lease has ended, its calls are answered so for
--- one ttl; but not in a grace period, in which it may restore its claim: the store may have missed its renewals.
local function dropHolder(queue)
  local holder = queue.holder
  queue.holder = nil
  if not holder or not holder.thinIn or work.claims[holder.bucket .. holder.id] ~= holder then return end
  local isRevoked = holder.state == REVOKED
  if holder.expires <= nowMs and holder.expires + holder.ttl > nowMs and (isRevoked or not inGracePeriod) then
    addTombstone(holder.bucket, holder.id, isRevoked and 'revoked' or 'expired', holder.expires + holder.ttl - nowMs)
  end
end

--- Removes what an earlier full form or a failed execution may have left: in full form it would count.
local function removeStaleEntries(queue)
  -- a needless DEL would be a first write, after which Redis refuses nothing
  if queue.stored ~= FULL and call('EXISTS', queue.admittedKey) == 1 then call('DEL', queue.admittedKey) end
end

--- Puts the entries in their sorted set, and the claim of the thin form in its own field.
local function makeFull(queue)
  if queue.isFull then return end
  removeStaleEntries(queue)
  local holder = queue.holder
  queue.first = math.huge
  if queue.count == 1 then
    addToSet(queue, formatEntry(holder, holder.locks[1]), holder)
    holder.thinIn = nil
    saveClaim(holder)
  else
    dropHolder(queue)
  end
  queue.isFull, queue.holder, queue.isChanged = true, nil, true
end

--- Admits a claim. `lock`: its permits in this queue. The caller saves the claim.
local function addAdmitted(queue, claim, lock)
  local entry = formatEntry(claim, lock)
  local isThin = queue.count == 0 and claim.count == 1
  if not isThin then makeFull(queue) end
  count(queue, entry, 1)
  queue.isChanged = true
  if isThin then
    dropHolder(queue)
    if queue.isFull then work.staleSets[#work.staleSets + 1] = queue end
    queue.isFull, queue.isMiscounted, queue.holder, claim.thinIn = false, false, claim, queue
  else
    addToSet(queue, entry, claim)
  end
end

--- Takes an entry out of those admitted, and returns whether it was there. `owner`: bucket and id of its claim.
local function removeAdmitted(queue, owner, entry)
  if queue.isFull then
    work.hasWritten = true
    if call('ZREM', queue.admittedKey, entry) == 0 then return false end
    count(queue, entry, -1)
    queue.first, queue.isMiscounted = nil, true
  elseif isThinHolder(queue, owner) then
    queue.count, queue.used, queue.recalling = 0, 0, 0
  else
    return false
  end
  queue.isChanged = true
  return true
end

--- The lease of an admitted claim has changed. `lock`: its permits in this queue.
local function updateLease(queue, claim, lock)
  if claim.thinIn then
    queue.isChanged = true
  elseif queue.isFull then
    makeFirstWrite(queue.hash)
    call('ZADD', queue.admittedKey, 'XX', claim.expires .. '', formatEntry(claim, lock), -nowMs .. '', WRITTEN_AT)
    queue.first = nil
    extendTtl(queue.admittedKey, claim.ttl + KEY_TTL_MARGIN)
  end
end

--- Removes a waiting entry, and returns how many there were.
local function removeWaiting(queue, entry)
  local position
  for index, known in ipairs(queue.waiting) do
    if known == entry then
      position = index
      break
    end
  end
  dropWaiting(queue, position)
  queue.isChanged, work.hasWritten = true, true
  return call('ZREM', queue.waitingKey, entry)
end

--- Appends an entry to the waiting ones and returns its arrival.
local function enqueue(queue, claim, entry)
  local wasEmpty = queue.behind == NONE and #queue.waiting == 0
  local arrival = formatInt(issueNumber(queue.bucket))
  makeFirstWrite(queue.hash)
  addEntry(queue.waitingKey, math.max(DAY, 2 * claim.ttl), arrival, entry)
  if queue.behind == NONE then queue.waiting[#queue.waiting + 1] = entry else queue.behind = SOME end
  queue.isChanged = true
  return arrival, wasEmpty
end

--- The only admitted claim of a queue in full form goes back into the field of its key, if it has one key.
local function makeThin(queue)
  local bucket, id = match(call('ZRANGE', queue.admittedKey, -1, -1)[1], ENTRY)
  local claim = readClaimIn(queue, bucket, id)
  if not isLive(claim) or claim.count > 1 or claim.token == 0 then return end
  put(queue.hash, CLAIM_FIELD .. claim.id, false)
  claim.hasOwnField, claim.thinIn, queue.holder, queue.isFull = false, queue, claim, false
  work.staleSets[#work.staleSets + 1] = queue
end

--- Puts the form of a queue among the fields to be written.
local function saveForm(queue)
  if not queue.isChanged then return end
  queue.isChanged = false
  if queue.count == 1 and queue.isFull then makeThin(queue) end
  if queue.isFull and queue.isMiscounted then
    if queue.count > 0 then writeTotals(queue) else call('DEL', queue.admittedKey) end
    queue.isMiscounted = false
  end
  local isWaitedFor = hasWaiting(queue)
  if queue.count == 1 and not queue.isFull then
    queue.stored = isWaitedFor and AWAITED or LONE
    put(queue.hash, queue.field, formatRecord(queue.holder, queue.stored))
  else
    dropHolder(queue)
    local form = (queue.count > 0 or isWaitedFor) and FULL or nil
    if form and not queue.isFull then removeStaleEntries(queue) end
    if form ~= queue.stored then put(queue.hash, queue.field, form or false) end
    queue.stored, queue.isFull = form, form == FULL
  end
end

--- Writes everything that has changed. Sets that count no more go last: until then their key was in full form.
local function saveForms()
  for _, queue in ipairs(work.loadedQueues) do saveForm(queue) end
  flush()
  extendHashes()
  for _, queue in ipairs(work.staleSets) do
    if not queue.isFull then call('DEL', queue.admittedKey) end
  end
end
