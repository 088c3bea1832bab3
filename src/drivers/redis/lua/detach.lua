--[[ detach.lua — detaches held claims: their leases no longer depend on the client, and the way they end is kept as a
     tombstone. The process of the first claim that waits for a shorter lease gets a recheck push. One round trip.
     KEYS  1 routes the call
     ARGV  the three of lib/prelude.lua, then for each claim the time that its lease shall have left (at most the ttl
           counts), a space, and its request (lib/records.lua)
     Returns a string with "1" for each claim that was held, else "0" ]]
--- include lib/prelude.lua
--- include lib/grace.lua
--- include lib/records.lua
--- include lib/codec.lua
--- include lib/push.lua
--- include lib/work.lua
--- include lib/claims.lua
--- include lib/queue.lua
--- include lib/tokens.lua
--- include lib/answers.lua
--- include lib/admission.lua
--- include lib/renewal.lua

local notified = {}

--- Cuts the lease short. A later renewal restores the full lease. The first claim that waits for it is to be asked
--- again sooner.
local function shortenLease(claim, remainingMs)
  claim.expires = nowMs + remainingMs
  saveClaim(claim)
  for _, lock in ipairs(claim.locks) do
    local queue = getQueue(lock[1], lock[2])
    updateLease(queue, claim, lock)
    local entry = peekWaiting(queue, 1)
    if entry then notified[#notified + 1] = readClaimIn(queue, match(entry, ENTRY)) end
  end
end

work.mustSucceed = true
local detached = {}
for index = 4, #ARGV do
  local remainingMs, text = match(ARGV[index], '^(%d+) (.*)$')
  local claim = findClaim(parseRequest(text))
  detached[index - 3] = '0'
  if isLive(claim) and claim.token > 0 and claim.state ~= REVOKED and isInItsQueues(claim) then
    claim.state, claim.isCut = DETACHED, true -- makes `extendLease` restart the lease however much is left
    extendLease(claim)
    if tonumber(remainingMs) < claim.ttl then shortenLease(claim, tonumber(remainingMs)) end
    detached[index - 3] = '1'
  end
end
saveForms() -- a process that is told may ask at once
for _, claim in ipairs(notified) do push(claim.inbox, claim.id) end
finish()
return table.concat(detached)
