--[[ claims.lua — the claims of this call, the numbers of its buckets, and the fields to be written.
     needs    prelude.lua, records.lua
     defines  claims, readFields, buckets, pending, mustSucceed, hasWritten, makeFirstWrite, put, putListed, flush, readField, extendTtl,
              addEntry, setBucket, getBucket, extendBucket, extendHashes, readClaim, saveClaim, addTombstone, forgetClaim, isLive

     Invariants
     - Each record is parsed once a call: all parts of the script see the same object. `claim.place` says where its record is:
       "c" its own field, "k" the field of its key (thin form), nil nowhere yet.
     - Fields are written in bundles, one HSET a bucket, deletions after it. Whatever is published was flushed before.
     - A call with `mustSucceed` (release, renewal, revocation) is not refused for lack of memory: after a write that only
       frees, Redis refuses nothing more. Other calls are refused with their first write, so they leave nothing. ]]
--- constants prelude.lua
--- constants records.lua
local MAX_FIELDS <const> = 500 -- the most fields of one command
local claims = {} -- by bucket and id
local readFields = {} -- by hash and field: what the common path has read already
local buckets = {}
local pending = {} -- by hash: fields to set (text) or to delete (false)
local mustSucceed = false
local hasWritten = false -- whether this call has written: from then on Redis refuses nothing for lack of memory

local function put(hash, field, value)
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
  if mustSucceed and not hasWritten then call('HDEL', hash, '') end
  hasWritten = true
end

local function writeFields(command, hash, words)
  for from = 1, #words, 2 * MAX_FIELDS do
    local reply = try(command, hash, unpack(words, from, math.min(from + 2 * MAX_FIELDS - 1, #words)))
    if type(reply) == 'table' then
      if string.find(reply.err, 'OOM', 1, true) then makeFirstWrite(hash) end
      call(command, hash, unpack(words, from, math.min(from + 2 * MAX_FIELDS - 1, #words)))
    end
    hasWritten = true
  end
end

local function flush()
  for hash, fields in pairs(pending) do
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
    pending[hash] = nil
  end
end

--- A field of a hash, with what this call is about to write.
local function readField(hash, field)
  local changed = pending[hash] and pending[hash][field]
  if changed ~= nil then return changed end
  local known = readFields[hash .. field]
  if known ~= nil then return known end
  return call('HGET', hash, field)
end

--- The key lives so long at least. Twice as much is set, so that most calls only look. Returns whether the key exists.
local function extendTtl(key, ms)
  return call('PTTL', key) >= ms or call('PEXPIRE', key, 2 * ms) == 1
end

--- Adds members to a sorted set, which lives so long at least; `entry` is the first of them. No entry stays in a set without a
--- time to live.
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
  buckets[bucket] = { hash = nameKey(bucket, HASH), last = tonumber(last or 0), extendedAt = tonumber(extendedAt or 0) }
  return buckets[bucket]
end

--- `last`: the last number issued in the bucket.
local function getBucket(bucket)
  if buckets[bucket] then return buckets[bucket] end
  local found = call('HMGET', nameKey(bucket, HASH), LAST_FIELD, EXTENDED_FIELD)
  return setBucket(bucket, found[1], found[2])
end

--- The hash outlives every lease in it. Called whenever a claim with this ttl is claimed or renewed; once an hour is enough.
local function extendBucket(bucket, ttl)
  local state = getBucket(bucket)
  local isRecent = now - state.extendedAt < EXTENSION_INTERVAL
  if isRecent and ttl < SHORT_TTL then return end
  state.neededTtl = math.max(state.neededTtl or DAY, ttl + DAY)
  state.needsStamp = state.needsStamp or not isRecent
  state.extendedAt = now
end

--- After the fields are written. The time is noted when the hash has its time to live: a hash that was evicted, and in which this
--- call wrote nothing, must not come into being without one.
local function extendHashes()
  for _, state in pairs(buckets) do
    if state.neededTtl and extendTtl(state.hash, state.neededTtl) and state.needsStamp then
      call('HSET', state.hash, EXTENDED_FIELD, time[1])
    end
  end
end

--- A claim by its record, or nil. A tombstone is { ended = <end reason> }. The thin form of its key, if it is there, was loaded
--- before (findClaim).
local function readClaim(bucket, id)
  local known = claims[bucket .. id]
  if known ~= nil then return known or nil end
  local hash, field, text = nameKey(bucket, HASH), CLAIM_FIELD .. id, nil
  if buckets[bucket] or readFields[hash .. field] ~= nil then
    text = readField(hash, field)
  else
    local found = call('HMGET', hash, field, LAST_FIELD, EXTENDED_FIELD)
    setBucket(bucket, found[2], found[3])
    text = found[1]
  end
  local claim = false
  local endsAt, ttl, reason = parseTombstone(text or '')
  if endsAt then
    if endsAt > nowMs then claim = { ended = reason, bucket = bucket, id = id, ttl = ttl } end
  elseif text then
    claim = parseRecord(bucket, text)
    claim.place = 'c'
    if claim.isCut then put(hash, field, formatRecord(claim, OWN)) end
  end
  claims[bucket .. id] = claim
  return claim or nil
end

--- Writes the record of a claim where it is: in its own field, or by `saveForm` in that of its key.
local function saveClaim(claim)
  claims[claim.bucket .. claim.id] = claim
  if claim.place == 'k' then
    claim.thinIn.isChanged = true
  else
    claim.place = 'c'
    put(nameKey(claim.bucket, HASH), CLAIM_FIELD .. claim.id, formatRecord(claim, OWN))
  end
end

--- Keeps how the claim has ended for one ttl: a late call of it may still arrive.
local function addTombstone(bucket, id, reason, ttl)
  extendBucket(bucket, ttl)
  put(nameKey(bucket, HASH), CLAIM_FIELD .. id, formatTombstone(reason, nowMs + ttl, ttl))
  claims[bucket .. id] = { ended = reason, bucket = bucket, id = id, ttl = ttl }
end

--- The claim is gone. The record of a thin holder goes with the form of its key.
local function forgetClaim(claim)
  if claim.place == 'c' then put(nameKey(claim.bucket, HASH), CLAIM_FIELD .. claim.id, false) end
  claims[claim.bucket .. claim.id] = false
end

local function isLive(claim)
  return claim and not claim.ended and claim.expires > nowMs
end
