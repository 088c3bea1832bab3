--[[ records.lua — the formats of a claim's record and of its entry in a queue. No other file knows them. ]]
local CLAIM = '>ddddddddc1s' -- struct.pack is several times as fast as text or cmsgpack, and exact for tokens
local REST = '>dc1ss'

--- The details that only lists need. `arrived`: arrivals in the queues entered, separated by commas.
local function restOf(placed, waits, arrived, json, label)
  return struct.pack(REST, placed, waits, arrived, json) .. label
end

local function save(claim)
  local record = struct.pack(CLAIM, claim.expires, claim.token, claim.stage, claim.missed, claim.ttl, claim.tokens,
    claim.floor, claim.count, claim.state, claim.inbox)
  call('SET', claim.key, record .. claim.rest, 'PX', claim.ttl * 2 + SLACK)
end

--- Reads the record of a claim, or nil. A lease that a backward step of the clock made longer than the ttl is cut to the ttl.
local function read(bucket, id)
  local key = named(bucket, 'c', id)
  local record = call('GET', key)
  if not record then return nil end
  local ended = match(record, '^x (.*)')
  if ended then return { key = key, id = id, ended = ended } end
  local expires, token, stage, missed, ttl, tokens, floor, count, state, home, at = struct.unpack(CLAIM, record)
  return {
    key = key, bucket = bucket, id = id, expires = math.min(expires, now + ttl), token = token, stage = stage,
    missed = missed, ttl = ttl, tokens = tokens, floor = floor, count = count, state = state, inbox = home,
    rest = string.sub(record, at), stepped = expires > now + ttl,
  }
end

--- Replaces the record by a tombstone, which stays for one ttl: a late call of the claim may still arrive.
local function bury(key, how, ttl)
  if not dirty then call('DEL', key) end
  call('SET', key, 'x ' .. how, 'PX', ttl)
end

--- The locks as { bucket, key, permits, limit }, all text. Only records of claims over several keys contain them.
local function holdsOf(claim)
  claim.holds = claim.holds or cjson.decode((select(4, struct.unpack(REST, claim.rest))))
  return claim.holds
end

local function placeOf(claim, hold)
  return claim.bucket .. claim.id .. ':' .. hold[3] .. ':' .. hold[4] .. ':' .. claim.ttl
end

--- Parses an entry: bucket and id of its claim, permits, limit and ttl.
local function parse(place)
  return match(place, '^(..)(%w+):(%d+):(%d+):(%d+)$')
end
