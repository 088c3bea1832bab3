--[[ claims.lua — what is known of one claim. ]]
--- What is known of a claim, or nil. A lease that a step back of the clock made longer than its ttl is cut to it.
local function read(bucket, id)
  local key = named(bucket, 'c', id)
  local f = call('HMGET', key, 'e', 't', 'k', 'n', 'f', 'c', 's', 'z', 'r', 'd', 'm', 'x')
  if f[12] then return { key = key, id = id, ended = f[12] } end
  if not f[1] then return nil end
  local claim = {
    key = key, bucket = bucket, id = id, expires = tonumber(f[1]), ttl = tonumber(f[2]), token = tonumber(f[3]),
    tokens = tonumber(f[4]), floor = tonumber(f[5]), inbox = f[6], stage = tonumber(f[7]), count = tonumber(f[8]),
    revoked = f[9], detached = f[10], missed = tonumber(f[11] or 0),
  }
  claim.stepped = claim.expires > now + claim.ttl
  if claim.stepped then claim.expires = now + claim.ttl end
  return claim
end

local function alive(claim)
  return claim and not claim.ended and claim.expires > now
end

--- Holds are { bucket, key, permits, limit }, all text.
local function holdsOf(claim)
  claim.holds = claim.holds or cjson.decode(call('HGET', claim.key, 'h'))
  return claim.holds
end

local function placeOf(claim, hold)
  return claim.bucket .. claim.id .. ':' .. hold[3] .. ':' .. hold[4] .. ':' .. text(claim.ttl)
end

local function parse(place)
  local bucket, id, permits, limit, ttl = string.match(place, '^(..)(%w+):(%d+):(%d+):(%d+)$')
  return { bucket = bucket, id = id, permits = tonumber(permits), limit = tonumber(limit), ttl = tonumber(ttl),
    hold = { false, false, permits, limit } }
end

--- Only how a claim ended is remembered, for as long as a late call of it may come.
local function bury(key, how, ttl)
  write('DEL', key)
  write('HSET', key, 'x', how)
  write('PEXPIRE', key, ttl)
end
