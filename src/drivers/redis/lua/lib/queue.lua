--[[ queue.lua — the queue of a key, the index of keys, and how a claim is admitted. claim.lua includes it before its fast
     path, so it contains no more than that needs.
     needs    prelude.lua
     defines  ALL_PERMITS, queues, getQueue, markEmpty, extendTtl, extendIndexTtl, addToIndex, addAdmitted, nextArrival ]]
local ALL_PERMITS = 1073741824 -- a claim with all permits: no other claim fits beside it
local queues = {}
local arrivalCount = -1
local indexTtls = {} -- by bucket: the time to live that its index has at least (ms)

local function getQueue(bucket, key)
  local queue = queues[key]
  if not queue then
    queue = {
      bucket = bucket, key = key, admitted = keyName(bucket, 'a', key), waiting = keyName(bucket, 'w', key),
      -- permits in use, end of the first lease, first waiting entry (false: none), whether a claim has left
      usedPermits = nil, firstExpiry = nil, firstWaiting = nil, needsAdmission = false,
    }
    queues[key] = queue
  end
  return queue
end

--- Notes that the queue has no admitted entries.
local function markEmpty(queue)
  queue.usedPermits, queue.firstExpiry = 0, math.huge
end

local function extendTtl(key, ms)
  if call('PTTL', key) < ms then call('PEXPIRE', key, ms) end
end

--- The index of a bucket outlives the entries in its queues, and renewals extend it. It must not stay for days: it contains
--- the names of keys.
local function extendIndexTtl(bucket, ttl)
  local least = math.max(2 * ttl, HOUR)
  if (indexTtls[bucket] or 0) >= least then return end
  indexTtls[bucket] = least
  local index = bucketKey(bucket, 'i')
  if call('PTTL', index) < least then call('PEXPIRE', index, 2 * least) end
end

--- Adds a key to the index.
local function addToIndex(bucket, member, ttl)
  call('ZADD', bucketKey(bucket, 'i'), '0', member)
  extendIndexTtl(bucket, ttl)
end

local function addAdmitted(queue, entry, permits, expires, ttl)
  call('ZADD', queue.admitted, expires .. '', entry)
  if queue.usedPermits == 0 then
    call('PEXPIRE', queue.admitted, ttl + KEY_TTL_MARGIN)
  else
    extendTtl(queue.admitted, ttl + KEY_TTL_MARGIN)
  end
  queue.usedPermits = queue.usedPermits + permits
  queue.firstExpiry = math.min(queue.firstExpiry, expires)
end

--- The next arrival, as text: within a queue it rises even if the clock steps back.
local function nextArrival(last)
  arrivalCount = arrivalCount + 1
  return formatInt(math.max(nowMicros + arrivalCount, last + 1))
end
