--[[ tokens.lua — fencing tokens. The last one of each bucket is kept exactly, and no token of the bucket is granted at or
     below it: so tokens rise whatever the clock does. Where the last ones may be missing, after a restart or a promotion, they
     go on above the floor (grace.lua). ]]
--- Tokens up to this one are spent: with guardDataLoss the mark stays ahead of them.
local function spend(last)
  if last > mark - LEAST then noteBirth(last + AHEAD) end
end

--- The first token that may be granted to a claim now, its last line being this one.
local function mint(claim, line)
  local token = math.max(micros, claim.floor, tokenFloor + 1)
  for at = 1, claim.count do
    local bucket = claim.count > 1 and holdsOf(claim)[at][1] or line.bucket
    token = math.max(token, (call('GET', shared(bucket, 'n')) or 0) + 1)
  end
  return token
end

--- The claim holds from now on, and its run of tokens is spent. Its record is the caller's affair.
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
