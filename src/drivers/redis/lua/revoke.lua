--[[ revoke.lua — revokes held claims: from now on they are answered "n revoked" and keep their entries until they are
     released or their leases end; with "now" they are removed at once. Their processes get a recheck push. One round trip.
     KEYS  1 routes the call
     ARGV  root, inbox, run record, longest ttl, number of targets, then for each: bucket, key, token, now ("1" or "0")
     Returns a string with "1" for each target that was found, else "0"
     Cost  O(admitted) for each target ]]
--- include lib.lua

local function holder(bucket, key, token, atOnce)
  for _, place in ipairs(call('ZRANGE', named(bucket, 'a', key), 0, -1)) do
    local owner, id, permits, limit = parse(place)
    local claim = read(owner, id)
    if alive(claim) and claim.token > 0 and (atOnce or claim.state ~= 'r') then
      local above = token - claim.token
      if above >= 0 and above < claim.tokens then
        return claim, claim.count > 1 and holdsOf(claim) or { { bucket, key, permits, limit } }
      end
    end
  end
end

local done = {}
for at = 1, tonumber(take()) do
  local bucket, key, token, atOnce = take(), take(), tonumber(take()), take() == '1'
  local claim, holds = holder(bucket, key, token, atOnce)
  done[at] = claim and '1' or '0'
  if claim and atOnce then
    leave(claim, holds)
    bury(claim.key, 'revoked', claim.ttl)
  elseif claim then
    claim.state = 'r'
    save(claim)
  end
  if claim then tell(claim, claim.id) end
end
settleAll()
return table.concat(done)
