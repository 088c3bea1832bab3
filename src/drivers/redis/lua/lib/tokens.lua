--[[ tokens.lua — fencing tokens.
     needs    prelude.lua, grace.lua, records.lua
     defines  recordSpent, nextToken, setToken

     The last token of each bucket is kept exactly, and every new token of the bucket is
     higher: so tokens rise even if the clock steps back. After a restart or a promotion the last tokens may be missing; then
     tokens continue above the floor (grace.lua). ]]
--- Notes that tokens up to this one are issued: with guardDataLoss the ceiling stays ahead of them.
local function recordSpent(highest)
  if highest > tokenCeiling - MIN_LEAD then writeRunRecord(highest + RAISED_LEAD) end
end

--- The lowest token that the claim may get now; `queue` is its last queue.
local function nextToken(claim, queue)
  local token = math.max(nowMicros, claim.floor, tokenFloor + 1)
  for index = 1, claim.count do
    local bucket = claim.count > 1 and readLocks(claim)[index][1] or queue.bucket
    token = math.max(token, (call('GET', bucketKey(bucket, 'n')) or 0) + 1)
  end
  return token
end

--- Sets the token of the claim and notes that its token range is issued. The caller saves the record.
local function setToken(claim, queue, token)
  claim.token = token
  local highest = token + claim.tokens - 1
  recordSpent(highest)
  local highestText = formatInt(highest)
  for index = 1, claim.count do
    local bucket = claim.count > 1 and readLocks(claim)[index][1] or queue.bucket
    call('SET', bucketKey(bucket, 'n'), highestText, 'PX', '172800000') -- two days
  end
end
