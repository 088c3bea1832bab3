--[[ records.lua — the formats of a claim's record, of its entry in a queue, and of its answer. No other file knows them.
     needs    prelude.lua
     defines  DETAILS_FORMAT, packDetails, saveClaim, readClaim, addTombstone, readLocks, formatEntry, parseEntry, isLive

     An entry is "<bucket><id>:<permits>:<limit>:<ttl>", so the admission rule needs no records.
     A record is packed. Its fields: end of lease (ms), token (0: waiting), number of queues entered, when its process was
     last unreachable (ms; 0: never), ttl, tokens, floor, number of locks, state ("o"rdinary, "d"etached, "r"evoked), inbox;
     and then details that only lists need: time of the claim (ms), waits, arrivals in the queues entered (separated by
     commas), locks as JSON (only if there are several), label. The record of an ended claim is a tombstone:
     "x <end reason>". ]]
local CLAIM_FORMAT = '>ddddddddc1s' -- struct.pack is several times as fast as text or cmsgpack, and exact for tokens
local DETAILS_FORMAT = '>dc1ss'

--- The details that only lists need. `arrivals`: arrivals in the queues entered, separated by commas.
local function packDetails(placedAt, waitFlag, arrivals, json, label)
  return struct.pack(DETAILS_FORMAT, placedAt, waitFlag, arrivals, json) .. label
end

local function saveClaim(claim)
  local record = struct.pack(CLAIM_FORMAT, claim.expires, claim.token, claim.enteredCount, claim.lastMissedAt, claim.ttl,
    claim.tokens, claim.floor, claim.count, claim.state, claim.inbox)
  call('SET', claim.key, record .. claim.details, 'PX', claim.ttl * 2 + KEY_TTL_MARGIN)
end

--- Reads the record of a claim, or nil. A lease that a backward step of the clock made longer than the ttl is cut to the ttl.
local function readClaim(bucket, id)
  local key = keyName(bucket, 'c', id)
  local record = call('GET', key)
  if not record then return nil end
  local ended = match(record, '^x (.*)')
  if ended then return { key = key, id = id, ended = ended } end
  local expires, token, enteredCount, lastMissedAt, ttl, tokens, floor, count, state, claimInbox, offset =
    struct.unpack(CLAIM_FORMAT, record)
  return {
    key = key, bucket = bucket, id = id, expires = math.min(expires, nowMs + ttl), token = token,
    enteredCount = enteredCount, lastMissedAt = lastMissedAt, ttl = ttl, tokens = tokens, floor = floor, count = count, state = state,
    inbox = claimInbox, details = string.sub(record, offset), leaseCut = expires > nowMs + ttl,
  }
end

--- Replaces the record by a tombstone, which stays for one ttl: a late call of the claim may still arrive.
local function addTombstone(key, reason, ttl)
  if not hasWritten then call('DEL', key) end
  call('SET', key, 'x ' .. reason, 'PX', ttl)
end

--- The locks as { bucket, key, permits, limit }, all text. Only records of claims over several keys contain them.
local function readLocks(claim)
  claim.locks = claim.locks or cjson.decode((select(4, struct.unpack(DETAILS_FORMAT, claim.details))))
  return claim.locks
end

local function formatEntry(claim, lock)
  return claim.bucket .. claim.id .. ':' .. lock[3] .. ':' .. lock[4] .. ':' .. claim.ttl
end

--- Parses an entry: bucket and id of its claim, permits, limit and ttl.
local function parseEntry(entry)
  return match(entry, '^(..)(%w+):(%d+):(%d+):(%d+)$')
end

local function isLive(claim)
  return claim and not claim.ended and claim.expires > nowMs
end
