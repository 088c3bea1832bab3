--[[ restore.lua — restores claims that were held when the store lost data, with their tokens. One round trip.
     KEYS  1 routes the call
     ARGV  the three of lib/prelude.lua, then for each claim its token, a space, and the request that made it, with the
           number of its tokens
     Returns one answer for each claim, as turn.lua
     A claim that is waiting at the store is restored, too: a promoted replica may have missed its grant. The script
     trusts the caller: the admission rule was checked when the claim was granted. Only if the store has lost a part of
     its data and still has claims in conflict with a restored one, those with the lowest tokens end, until all that are
     left in the queue could have been granted in some order (as in lock-table/key-queue.ts: if any order works,
     ascending limits do).
     Cost  O(claims + admitted), and O(admitted) without a command for each claim that ends ]]
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

--- The admitted claims of a queue, in ascending order of limit; a claim that waits for a later key has no token yet.
local function readHolders(queue)
  local holders = {}
  for _, entry in ipairs(listAdmitted(queue)) do
    local bucket, id, permits, limit = match(entry, ENTRY)
    local claim = readClaimIn(queue, bucket, id)
    if isLive(claim) then
      holders[#holders + 1] = { claim = claim, permits = tonumber(permits), limit = tonumber(limit) }
    end
  end
  table.sort(holders, function(left, right) return left.limit < right.limit end)
  return holders
end

--- The index of the claim that must end; nil if all fit.
local function findConflict(holders)
  local usedPermits, lowestIndex = 0, 1
  for index, holder in ipairs(holders) do
    if holder.claim.token < holders[lowestIndex].claim.token then lowestIndex = index end
    if usedPermits + holder.permits > holder.limit then return lowestIndex end
    usedPermits = usedPermits + holder.permits
  end
end

local function removeConflicts(queue)
  local holders = readHolders(queue)
  local index = findConflict(holders)
  while index do
    removeClaim(table.remove(holders, index).claim)
    index = findConflict(holders)
  end
end

local function restoreClaim(claim)
  for _, lock in ipairs(claim.locks) do
    local queue = getQueue(lock[1], lock[2])
    extendBucket(lock[1], claim.ttl)
    addAdmitted(queue, claim, lock)
  end
  saveClaim(claim)
  raiseLast(claim.locks, claim.token + claim.tokens - 1)
end

work.mustSucceed = true
local restored = {}
for index = 4, #ARGV do
  local token, text = match(ARGV[index], '^(%d+) (.*)$')
  local request = parseRequest(text)
  restored[index - 3] = request
  work.answeredHere[request.id] = true
  local existing = findClaim(request)
  local isWaiting = existing and not existing.ended and existing.token == 0
  if inGracePeriod and (not existing or isWaiting) and acceptsFloor(tonumber(token), request.locks) then
    if existing then removeClaim(existing) end
    local claim = createClaim(request)
    claim.token, claim.enteredCount, claim.arrivals = tonumber(token), claim.count, string.rep(token .. ',', claim.count - 1)
    restoreClaim(claim)
  end
end
-- only after all are restored: of two claims in conflict the later one may stay
local isChecked = {} -- by queue
for _, request in ipairs(restored) do
  for _, lock in ipairs(request.locks) do
    local queue = work.queues[lock[2]]
    if queue and not isChecked[queue] then
      isChecked[queue] = true
      removeConflicts(queue)
    end
  end
end
local answers = {}
for index, request in ipairs(restored) do
  local existing = findClaim(request)
  answers[index] = existing and renewClaim(existing) or encodeNone()
end
finish()
for index, request in ipairs(restored) do answers[index] = finalAnswer(answers[index], request.id) end
return answers
