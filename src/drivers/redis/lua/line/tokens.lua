--[[ tokens.lua — fencing tokens, and how a grant is told. ]]
local function counter(bucket)
  return root .. '{' .. bucket .. '}:n'
end

local function bucketsOf(claim, line)
  if claim.count == 1 then return { line.bucket } end
  local buckets = {}
  for at, hold in ipairs(holdsOf(claim)) do buckets[at] = hold[1] end
  return buckets
end

--- The first token that may be granted to a claim now, its last line being this one.
local function mint(claim, line)
  local token = math.max(micros, claim.floor)
  for _, bucket in ipairs(bucketsOf(claim, line)) do
    token = math.max(token, (call('GET', counter(bucket)) or 0) + 1)
  end
  return token
end

--- The claim's run of tokens is spent; its record is the caller's affair.
local function grant(claim, line)
  claim.token = claim.token > 0 and claim.token or mint(claim, line)
  for _, bucket in ipairs(bucketsOf(claim, line)) do
    write('SET', counter(bucket), text(claim.token + claim.tokens - 1), 'PX', 2 * DAY)
  end
end

--- Says it to the claim's process, in a Cluster by a channel of the bucket's own (it has a hash tag); was it listening? An error of Redis (no right to publish) is no sign of that.
local function tell(claim, message)
  local how = string.find(claim.inbox, '{', 1, true) and 'SPUBLISH' or 'PUBLISH'
  -- asked first with nothing: an inbox that was left behind on a replica hears what nobody is counted for, and would
  -- take a grant that is not made for one
  local heard = redis.pcall(how, claim.inbox, '')
  if heard == 0 then return false end
  redis.pcall(how, claim.inbox, message)
  return true
end
