--[[ detach.lua — detaches held claims: their leases no longer depend on the client, and the way they end is kept as a
     tombstone. One round trip.
     KEYS  1 routes the call
     ARGV  the four of lib/prelude.lua, number of claims, then for each: the time that its lease shall have left (at
           most the ttl counts), and the claim (id, ttl, count, locks)
     Returns a string with "1" for each claim that was held, else "0" ]]
--- include lib/prelude.lua
--- include lib/grace.lua
--- include lib/records.lua
--- include lib/queue.lua
--- include lib/entries.lua
--- include lib/tokens.lua
--- include lib/admission.lua
--- include lib/answers.lua
--- include lib/renewal.lua

--- Cuts the lease short. A later renewal restores the full lease.
local function shortenLease(claim, locks, remainingMs)
  claim.expires = nowMs + remainingMs
  saveClaim(claim)
  for index = 1, claim.count do
    local queue = getQueue(locks[index][1], locks[index][2])
    call('ZADD', queue.admitted, 'XX', claim.expires .. '', formatEntry(claim, locks[index]))
    queue.usedPermits = nil
  end
end

local detached = {}
for index = 1, tonumber(nextArg()) do
  local remainingMs = tonumber(nextArg())
  local request, locks = nextClaim()
  local claim = readClaim(request.bucket, request.id)
  detached[index] = '0'
  if isLive(claim) and claim.token > 0 and claim.state ~= 'r' and isInItsQueues(claim, locks) then
    claim.state, claim.leaseCut = 'd', true -- makes `extend` restart the lease however much is left
    extendLease(claim, locks)
    if remainingMs < claim.ttl then shortenLease(claim, locks, remainingMs) end
    detached[index] = '1'
  end
end
return table.concat(detached)
