--[[ revoke.lua — revokes held claims: from now on they are answered "n revoked" and keep their entries until they are
     released or their leases end; with "now" they are removed at once. Their processes get a recheck push. One round
     trip.
     KEYS  1 routes the call
     ARGV  the three of lib/prelude.lua, then for each target: now ("1" or "0"), bucket, key, "\n", token
     Returns a string with "1" for each target that was found, else "0"
     Cost  O(admitted) for each target ]]
--- include lib/prelude.lua
--- include lib/grace.lua
--- include lib/records.lua
--- include lib/codec.lua
--- include lib/push.lua
--- include lib/work.lua
--- include lib/claims.lua
--- include lib/queue.lua
--- include lib/tokens.lua
--- include lib/admission.lua

local function findHolder(queue, token, isImmediate)
  for _, entry in ipairs(listAdmitted(queue)) do
    local claim = readClaimIn(queue, match(entry, ENTRY))
    if isLive(claim) and claim.token > 0 and (isImmediate or claim.state ~= REVOKED) then
      local offset = token - claim.token
      if offset >= 0 and offset < claim.tokens then return claim end
    end
  end
end

work.mustSucceed = true
local found, notified = {}, {}
for index = 4, #ARGV do
  local isNow, bucket, key, token = match(ARGV[index], '^(.)(..)([^\n]+)\n(%d+)$')
  local claim = findHolder(getQueue(bucket, key), tonumber(token), isNow == '1')
  found[index - 3] = claim and '1' or '0'
  if claim and isNow == '1' then
    removeClaim(claim)
    addTombstone(claim.bucket, claim.id, 'revoked', claim.ttl)
  elseif claim then
    claim.state = REVOKED
    saveClaim(claim)
  end
  if claim then notified[#notified + 1] = claim end
end
saveForms() -- a process that is told may ask at once
for _, claim in ipairs(notified) do push(claim.inbox, claim.id) end
finish()
return table.concat(found)
