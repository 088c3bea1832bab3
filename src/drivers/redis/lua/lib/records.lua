--[[ records.lua — the forms of a claim's record and of its place in a line: nothing else knows them. ]]
local CLAIM = '>ddddddddc1s' -- struct.pack is several times as fast as texts or cmsgpack, and keeps tokens exact
local REST = '>dc1ss'

--- What only lists tell of a claim. `arrived`: its arrivals in the lines it has entered, with commas between.
local function restOf(placed, waits, arrived, json, label)
  return struct.pack(REST, placed, waits, arrived, json) .. label
end

local function save(claim)
  local record = struct.pack(CLAIM, claim.expires, claim.token, claim.stage, claim.missed, claim.ttl, claim.tokens,
    claim.floor, claim.count, claim.state, claim.inbox)
  call('SET', claim.key, record .. claim.rest, 'PX', claim.ttl * 2 + SLACK)
end

--- What is known of a claim, or nil. A lease that a step back of the clock made longer than its ttl is cut to it.
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

--- Only how a claim ended is remembered, for as long as a late call of it may come.
local function bury(key, how, ttl)
  if not dirty then call('DEL', key) end
  call('SET', key, 'x ' .. how, 'PX', ttl)
end

--- Holds are { bucket, key, permits, limit }, all text. Only claims over several keys keep them.
local function holdsOf(claim)
  claim.holds = claim.holds or cjson.decode((select(4, struct.unpack(REST, claim.rest))))
  return claim.holds
end

local function placeOf(claim, hold)
  return claim.bucket .. claim.id .. ':' .. hold[3] .. ':' .. hold[4] .. ':' .. claim.ttl
end

--- The bucket and the id of a place's claim, its permits, limit and ttl.
local function parse(place)
  return match(place, '^(..)(%w+):(%d+):(%d+):(%d+)$')
end
