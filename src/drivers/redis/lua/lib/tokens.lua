--[[ tokens.lua — fencing tokens.
     needs    prelude.lua, grace.lua, claims.lua
     defines  raiseLast, acceptsFloor, issueTokens

     The last number issued in each bucket is kept exactly, and every new token of the bucket is higher: so tokens rise
     even if the clock steps back. After a restart or a promotion the last numbers may be missing; then tokens continue
     above `lastBeforeLoss` (grace.lua). ]]
--- constants prelude.lua

--- Notes that tokens up to this one are issued: with guardDataLoss the ceiling stays ahead of them.
local function recordSpent(highest)
  if highest <= tokenCeiling - MIN_LEAD then return end
  local record = { replicationId, graceEndsAt .. '', formatInt(lastBeforeLoss), formatInt(highest + RAISED_LEAD) }
  if not try('SET', runRecordKey, table.concat(record, ' ')).err then tokenCeiling = highest + RAISED_LEAD end
end

--- Tokens up to this one are issued on these keys: every later number of their buckets is higher.
local function raiseLast(locks, highest)
  recordSpent(highest)
  for _, lock in ipairs(locks) do
    local numbers = getBucket(lock[1])
    numbers.last = math.max(numbers.last, highest)
    put(numbers.hash, LAST_FIELD, formatInt(numbers.last))
  end
end

--- One above the last token on these keys.
local function nextAfterLast(locks)
  local token = lastBeforeLoss + 1
  for _, lock in ipairs(locks) do token = math.max(token, getBucket(lock[1]).last + 1) end
  return token
end

--- Restates the floor rule, for the floor of a claim, or for the token of one that is to be restored.
local function acceptsFloor(floor, locks)
  return floor <= nowMicros + DAY * 1000 or floor <= nextAfterLast(locks)
end

--- Restates the token rule: gives the claim the lowest token that it may get now. The caller saves its record.
local function issueTokens(claim, locks)
  claim.token = math.max(nowMicros, claim.floor, nextAfterLast(locks))
  raiseLast(locks, claim.token + claim.tokens - 1)
end
