--[[ recheck.lua — when waiting claims should recheck, and the answer "none". ]]
--- The time until a lease ahead of the claim may end (ms); false if the claim is held.
local function recheckAfter(claim, queue)
  if claim.token > 0 then return false end
  if scanBudget == 0 then return 50 end
  loadQueue(queue)
  local front = readFirstWaiting(queue)
  local _, id = parseEntry(front or '')
  local blockerExpires = math.huge
  if front and id ~= claim.id then
    if queue.blocker ~= front then
      local blockingClaim = firstLiveWaiting(queue)
      loadQueue(queue)
      queue.blocker, queue.blockerExpires = queue.firstWaiting, blockingClaim and blockingClaim.expires or nowMs
    end
    blockerExpires = queue.blockerExpires
  end
  local recheckAt = math.min(nowMs + claim.ttl, queue.firstExpiry, blockerExpires)
  if inGracePeriod then recheckAt = math.min(recheckAt, graceEndsAt) end
  return math.max(recheckAt - nowMs, 1)
end

local function encodeNone(reason)
  return reason and 'n ' .. reason or 'n'
end
