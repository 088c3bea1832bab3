--[[ arguments.lua — what the scripts are told of claims. ]]
--- Arguments: id, ttl, count, then bucket, key, permits, limit for each hold.
local cursor = 4
local function take()
  cursor = cursor + 1
  return ARGV[cursor]
end

local function takeClaim()
  local claim = { id = take(), ttl = tonumber(take()), count = tonumber(take()) }
  local holds = {}
  for at = 1, claim.count do holds[at] = { take(), take(), take(), take() } end
  claim.bucket = holds[1][1]
  return claim, holds
end
