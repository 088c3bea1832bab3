--[[ tokens.lua — fencing tokens. The last token of each bucket is kept exactly, and every new token of the bucket is
     higher: so tokens rise even if the clock steps back. After a restart or a promotion the last tokens may be missing; then
     tokens continue above the floor (grace.lua). ]]
--- Notes that tokens up to this one are issued: with guardDataLoss the mark stays ahead of them.
local function spend(last)
  if last > mark - LEAST then noteBirth(last + AHEAD) end
end

--- The lowest token that the claim may get now; `line` is its last queue.
local function mint(claim, line)
  local token = math.max(micros, claim.floor, tokenFloor + 1)
  for at = 1, claim.count do
    local bucket = claim.count > 1 and holdsOf(claim)[at][1] or line.bucket
    token = math.max(token, (call('GET', shared(bucket, 'n')) or 0) + 1)
  end
  return token
end

--- Sets the token of the claim and notes that its token range is issued. The caller saves the record.
local function grant(claim, line, token)
  claim.token = token
  local highest = token + claim.tokens - 1
  spend(highest)
  local last = text(highest)
  for at = 1, claim.count do
    local bucket = claim.count > 1 and holdsOf(claim)[at][1] or line.bucket
    call('SET', shared(bucket, 'n'), last, 'PX', '172800000') -- two days
  end
end
