--[[ release.lua — removes claims, waiting or held, grants to those that are admitted now, and publishes the grants to
     their inboxes. One round trip.
     KEYS  1 routes the call
     ARGV  the four of lib/prelude.lua, number of claims, then for each: "1" if a `claim` call of it may still
           arrive, else "0"; the claim
     Returns a string with "1" for each claim that was there, else "0"; then "\n" and a push for each granted claim with the
           caller's own inbox
     Cost  O(claims x (admitted + expired entries)), and one PUBLISH for each other grant. The first write frees memory, so
           the script succeeds when memory is full. ]]
--- include lib/prelude.lua
--- include lib/grace.lua
--- include lib/records.lua

-- the fast path: one held claim with one key. It sets up nothing that it does not need
local bucket, key = ARGV[10], ARGV[11]
local single = ARGV[5] == '1' and ARGV[6] == '0' and ARGV[9] == '1' and readClaim(bucket, ARGV[7])
local isFastPath = isLive(single) and single.state == 'o' and single.token > 0
local found, remaining = {}, nil
if isFastPath then
  local admitted = keyName(bucket, 'a', key)
  found[1] = call('ZREM', admitted, formatEntry(single, { bucket, key, ARGV[12], ARGV[13] })) == 1 and '1' or '0'
  hasWritten = true
  call('DEL', single.key)
  local waiting = keyName(bucket, 'w', key)
  remaining = call('EXISTS', admitted, waiting, waiting) -- waiting entries count twice
  if remaining == 0 then
    call('ZREM', bucketKey(bucket, 'i'), key)
    return found[1]
  end
end

--- include lib/queue.lua
--- include lib/entries.lua
--- include lib/tokens.lua
--- include lib/admission.lua

local function releaseOne(unanswered, request, locks)
  local claim = readClaim(request.bucket, request.id)
  local result = '0'
  if not claim then
    removeUnknown(request, locks)
    -- it may have been held before the loss of data; nothing was granted since. The tombstone stops a late claim call
    if inGracePeriod then result, unanswered = '1', true end
  elseif not claim.ended then
    local isAll = removeClaim(claim, locks) == claim.enteredCount
    if isLive(claim) then
      if isAll and claim.state ~= 'r' then result = '1' end
      if claim.state ~= 'o' then
        addTombstone(claim.key, claim.state == 'r' and 'revoked' or 'released', claim.ttl)
      elseif not unanswered then
        call('DEL', claim.key)
      end
    end
  end
  if unanswered then addTombstone(request.key, 'released', request.ttl) end
  return result
end

if isFastPath then
  local queue = getQueue(bucket, key)
  markTouched(queue)
  if remaining == 2 then markEmpty(queue) end
else
  for index = 1, tonumber(nextArg()) do found[index] = releaseOne(nextArg() == '1', nextClaim()) end
end
ownPushes = {}
admitTouched()
return table.concat(found) .. (ownPushes[1] and '\n' .. table.concat(ownPushes, '\n') or '')
