--[[ claims.lua — the claims of this call, the numbers of its buckets, and the fields to be written.
     needs    prelude.lua, names.lua, codec.lua, work.lua
     defines  put, putListed, makeFirstWrite, flush, readField, extendTtl, addEntry, setBucket, getBucket, extendBucket,
              extendHashes, readClaim, saveClaim, addTombstone, forgetClaim, isLive

     Invariants
     - Each record is parsed once an execution: all parts of the script see the same object. Where the record is:
       `claim.thinIn` is the queue in thin form whose field it is; else `claim.hasOwnField` says whether the claim has a
       field of its own.
     - Fields are written in bundles, one HSET a bucket, deletions after it. Whatever is published was flushed before.
     - An execution that `mustSucceed` (release, renewal, revocation) is not refused for lack of memory: after a write
       that only frees, Redis refuses nothing more. Other calls are refused with their first write, so they leave
       nothing. ]]
--- constants prelude.lua
--- constants records.lua
local MAX_FIELDS <const> = 500 -- the most fields of one command

local function put(hash, field, value)
  local pending = work.pending
  pending[hash] = pending[hash] or {}
  pending[hash][field] = value
end

--- Lists a claim over several keys also where it has not entered the queue yet (""), or no more (false).
local function putListed(claim, value)
  for _, lock in ipairs(claim.count > 1 and claim.locks or {}) do
    put(nameKey(lock[1], HASH), LISTED_FIELD .. lock[2] .. OWNER .. claim.bucket .. claim.id, value)
  end
end

--- Redis counts this as a write and never refuses it for lack of memory.
local function makeFirstWrite(hash)
  if work.mustSucceed and not work.hasWritten then call('HDEL', hash, '') end
  work.hasWritten = true
end

local function writeFields(command, hash, words)
  for from = 1, #words, 2 * MAX_FIELDS do
    local reply = try(command, hash, unpack(words, from, math.min(from + 2 * MAX_FIELDS - 1, #words)))
    if type(reply) == 'table' then
      if string.find(reply.err, 'OOM', 1, true) then makeFirstWrite(hash) end
      call(command, hash, unpack(words, from, math.min(from + 2 * MAX_FIELDS - 1, #words)))
    end
    work.hasWritten = true
  end
end

local function flush()
  for hash, fields in pairs(work.pending) do
    local sets, deletions = {}, {}
    for field, value in pairs(fields) do
      if value then
        sets[#sets + 1] = field
        sets[#sets + 1] = value
      else
        deletions[#deletions + 1] = field
      end
    end
    if sets[1] then writeFields('HSET', hash, sets) end
    if deletions[1] then writeFields('HDEL', hash, deletions) end
    work.pending[hash] = nil
  end
end

--- A field of a hash, with what is about to be written.
local function readField(hash, field)
  local pending = work.pending[hash]
  local changed = pending and pending[field]
  if changed ~= nil then return changed end
  local known = work.readFields[hash .. field]
  if known ~= nil then return known end
  return call('HGET', hash, field)
end

--- The key lives so long at least. Twice as much is set, so that most calls only look. Returns whether the key exists.
local function extendTtl(key, ms)
  return call('PTTL', key) >= ms or call('PEXPIRE', key, 2 * ms) == 1
end

--- Adds members to a sorted set, which lives so long at least; `entry` is the first of them. No entry stays in a set
--- without a time to live.
local function addEntry(key, ms, score, entry, ...)
  local left = call('PTTL', key)
  call('ZADD', key, score, entry, ...)
  if left < ms and type(try('PEXPIRE', key, 2 * ms)) == 'table' then
    if left == -2 then call('DEL', key) else call('ZREM', key, entry) end
    call('PEXPIRE', key, 2 * ms) -- raises the error
  end
end

--- Sets the numbers of a bucket, which were read together with something else.
local function setBucket(bucket, last, extendedAt)
  local numbers = { hash = nameKey(bucket, HASH), last = tonumber(last or 0), extendedAt = tonumber(extendedAt or 0) }
  work.buckets[bucket] = numbers
  return numbers
end

--- `last`: the last number issued in the bucket.
local function getBucket(bucket)
  local numbers = work.buckets[bucket]
  if numbers then return numbers end
  local read = call('HMGET', nameKey(bucket, HASH), LAST_FIELD, EXTENDED_FIELD)
  return setBucket(bucket, read[1], read[2])
end

--- The hash outlives every lease in it. Called whenever a claim with this ttl is claimed or renewed; once an hour is
--- enough.
local function extendBucket(bucket, ttl)
  local numbers = getBucket(bucket)
  local isRecent = now - numbers.extendedAt < EXTENSION_INTERVAL
  if isRecent and ttl < SHORT_TTL then return end
  numbers.neededTtl = math.max(numbers.neededTtl or DAY, ttl + DAY)
  numbers.needsStamp = numbers.needsStamp or not isRecent
  numbers.extendedAt = now
end

--- After the fields are written. The time is noted when the hash has its time to live: a hash that was evicted, and in
--- which this call wrote nothing, must not come into being without one.
local function extendHashes()
  for _, numbers in pairs(work.buckets) do
    if numbers.neededTtl and extendTtl(numbers.hash, numbers.neededTtl) and numbers.needsStamp then
      call('HSET', numbers.hash, EXTENDED_FIELD, time[1])
    end
  end
end

--- A claim by its record, or nil. A tombstone is { ended = <end reason> }. The thin form of its key, if it is there,
--- was loaded before (findClaim).
local function readClaim(bucket, id)
  local known = work.claims[bucket .. id]
  if known ~= nil then return known or nil end
  local hash, field, text = nameKey(bucket, HASH), CLAIM_FIELD .. id, nil
  if work.buckets[bucket] or work.readFields[hash .. field] ~= nil then
    text = readField(hash, field)
  else
    local read = call('HMGET', hash, field, LAST_FIELD, EXTENDED_FIELD)
    setBucket(bucket, read[2], read[3])
    text = read[1]
  end
  local claim = false
  local endsAt, ttl, reason = parseTombstone(text or '')
  if endsAt then
    if endsAt > nowMs then claim = { ended = reason, bucket = bucket, id = id, ttl = ttl } end
  elseif text then
    claim = parseRecord(bucket, text)
    claim.hasOwnField = true
    if claim.isCut then put(hash, field, formatRecord(claim, OWN)) end
  end
  work.claims[bucket .. id] = claim
  return claim or nil
end

--- Writes the record of a claim where it is: in its own field, or by `saveForm` in that of its key.
local function saveClaim(claim)
  work.claims[claim.bucket .. claim.id] = claim
  if claim.thinIn then
    claim.thinIn.isChanged = true
  else
    claim.hasOwnField = true
    put(nameKey(claim.bucket, HASH), CLAIM_FIELD .. claim.id, formatRecord(claim, OWN))
  end
end

--- Keeps how the claim has ended for one ttl: a late call of it may still arrive.
local function addTombstone(bucket, id, reason, ttl)
  extendBucket(bucket, ttl)
  put(nameKey(bucket, HASH), CLAIM_FIELD .. id, formatTombstone(reason, nowMs + ttl, ttl))
  work.claims[bucket .. id] = { ended = reason, bucket = bucket, id = id, ttl = ttl }
end

--- The claim is gone. The record of a thin holder goes with the form of its key.
local function forgetClaim(claim)
  if claim.hasOwnField then put(nameKey(claim.bucket, HASH), CLAIM_FIELD .. claim.id, false) end
  work.claims[claim.bucket .. claim.id] = false
end

local function isLive(claim)
  return claim and not claim.ended and claim.expires > nowMs
end
