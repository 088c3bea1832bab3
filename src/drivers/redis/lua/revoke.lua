--[[ revoke.lua — revokes held claims: from now on they are answered "n revoked" and keep their entries until they are
     released or their leases end; with "now" they are removed at once. Their processes get a recheck push. One round trip.
     KEYS  1 routes the call
     ARGV  the four of lib/prelude.lua, number of targets, then for each: bucket, key, token, now ("1" or "0")
     Returns a string with "1" for each target that was found, else "0"
     Cost  O(admitted) for each target ]]
--- include lib/prelude.lua
--- include lib/grace.lua
--- include lib/records.lua
--- include lib/queue.lua
--- include lib/entries.lua
--- include lib/tokens.lua
--- include lib/admission.lua

local function findHolder(bucket, key, token, isImmediate)
  for _, entry in ipairs(call('ZRANGE', keyName(bucket, 'a', key), 0, -1)) do
    local owner, id, permits, limit = parseEntry(entry)
    local claim = readClaim(owner, id)
    if isLive(claim) and claim.token > 0 and (isImmediate or claim.state ~= 'r') then
      local offset = token - claim.token
      if offset >= 0 and offset < claim.tokens then
        return claim, claim.count > 1 and readLocks(claim) or { { bucket, key, permits, limit } }
      end
    end
  end
end

local found = {}
for index = 1, tonumber(nextArg()) do
  local bucket, key, token, isImmediate = nextArg(), nextArg(), tonumber(nextArg()), nextArg() == '1'
  local claim, locks = findHolder(bucket, key, token, isImmediate)
  found[index] = claim and '1' or '0'
  if claim and isImmediate then
    removeClaim(claim, locks)
    addTombstone(claim.key, 'revoked', claim.ttl)
  elseif claim then
    claim.state = 'r'
    saveClaim(claim)
  end
  if claim then push(claim, claim.id) end
end
admitTouched()
return table.concat(found)
