--[[ detach.lua — detaches held claims: their leases no longer depend on the client, and the way they end is kept as a
     tombstone. One round trip.
     KEYS  1 routes the call
     ARGV  the three of lib/prelude.lua, then for each claim the time that its lease shall have left (at most the ttl
           counts), a space, and its request (lib/records.lua)
     Returns a string with "1" for each claim that was held, else "0" ]]
--- include lib/prelude.lua
--- include lib/grace.lua
--- include lib/records.lua
--- include lib/claims.lua
--- include lib/queue.lua
--- include lib/tokens.lua
--- include lib/answers.lua
--- include lib/admission.lua
--- include lib/renewal.lua

--- Cuts the lease short. A later renewal restores the full lease.
local function shortenLease(claim, remainingMs)
  claim.expires = nowMs + remainingMs
  saveClaim(claim)
  for _, lock in ipairs(claim.locks) do updateLease(getQueue(lock[1], lock[2]), claim, lock) end
end

mustSucceed = true
local detached = {}
for index = 4, #ARGV do
  local remainingMs, text = match(ARGV[index], '^(%d+) (.*)$')
  local claim = findClaim(parseRequest(text))
  detached[index - 3] = '0'
  if isLive(claim) and claim.token > 0 and claim.state ~= 'r' and isInItsQueues(claim) then
    claim.state, claim.isCut = 'd', true -- makes `extendLease` restart the lease however much is left
    extendLease(claim)
    if tonumber(remainingMs) < claim.ttl then shortenLease(claim, tonumber(remainingMs)) end
    detached[index - 3] = '1'
  end
end
finish()
return table.concat(detached)
