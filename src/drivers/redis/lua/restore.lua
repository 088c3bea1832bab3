--[[ restore.lua — restores claims that were held when the store lost data, with their tokens. One round trip.
     KEYS  1 routes the call
     ARGV  root, inbox, run record, longest ttl, number of claims, then for each: the claim, tokens, floor, waits, label,
           locks as JSON, and its token
     Returns one answer for each claim, as claim.lua
     A claim that is waiting at the store is restored, too: a promoted replica may have missed its grant. The script trusts
     the caller: the admission rule was checked when the claim was granted. Only if the store has lost a part of its data and
     still has claims in conflict with a restored one, those with the lowest tokens end, until all that are left in the queue
     could have been granted in some order (as in lock-table/key-queue.ts: if any order works, ascending limits do).
     Cost  O(claims + admitted), and O(admitted) without a command for each claim that ends ]]
--- include lib.lua
--- include lib/answers.lua
--- include lib/recheck.lua
--- include lib/renewal.lua

--- The admitted claims of a queue, in ascending order of limit; a claim that waits for a later key has no token yet.
local function holdersOf(line)
  local found = {}
  for _, place in ipairs(call('ZRANGE', line.admitted, 0, -1)) do
    local bucket, id, permits, limit = parse(place)
    local claim = read(bucket, id)
    if alive(claim) then
      found[#found + 1] = { claim = claim, permits = permits, limit = limit }
    end
  end
  table.sort(found, function(one, other) return tonumber(one.limit) < tonumber(other.limit) end)
  return found
end

--- The index of the claim that must end; nil if all fit.
local function overfull(holders)
  local used, lowest = 0, 1
  for at, one in ipairs(holders) do
    if one.claim.token < holders[lowest].claim.token then lowest = at end
    if used + one.permits > tonumber(one.limit) then return lowest end
    used = used + one.permits
  end
end

local function clear(line)
  local holders = holdersOf(line)
  local at = overfull(holders)
  while at do
    local most = table.remove(holders, at)
    local claim = most.claim
    leave(claim, claim.count > 1 and holdsOf(claim) or { { line.bucket, line.name, most.permits, most.limit } })
    call('DEL', claim.key)
    at = overfull(holders)
  end
end

local function place(claim, rest)
  call('DEL', claim.key) -- Redis never refuses this first write
  dirty = true
  claim.rest = rest
  for _, hold in ipairs(claim.holds) do
    local line = lineOf(hold[1], hold[2])
    look(line)
    if isIdle(line) then enlist(line.bucket, line.name, claim.ttl) end
    admit(line, placeOf(claim, hold), hold[3], claim.expires, claim.ttl)
  end
  save(claim)
  local last = claim.token + claim.tokens - 1
  spend(last)
  for _, hold in ipairs(claim.holds) do
    local key = shared(hold[1], 'n')
    if tonumber(call('GET', key) or 0) < last then call('SET', key, text(last), 'PX', 2 * DAY) end
  end
end

local all = {}
for at = 1, tonumber(take()) do
  local asked, holds = takeClaim()
  local claim = {
    key = asked.key, bucket = asked.bucket, id = asked.id, expires = now + asked.ttl, token = 0, stage = asked.count,
    missed = 0, ttl = asked.ttl, tokens = tonumber(take()), floor = tonumber(take()), count = asked.count, state = 'o',
    inbox = inbox, rest = '', holds = holds,
  }
  local waits, label, json, token = take(), take(), take(), take()
  claim.token = tonumber(token)
  all[at] = claim
  asking[claim.id] = true
  local known = read(claim.bucket, claim.id)
  local isWaiting = known and not known.ended and known.token == 0
  if breathing and claim.token <= micros + DAY * 1000 and (not known or isWaiting) then
    if known then leave(known, holds) end
    place(claim, restOf(now, waits, string.rep(token .. ',', claim.count), json, label))
  end
end
-- only after all are restored: of two claims in conflict the later one may stay. Each queue is checked once
for _, claim in ipairs(all) do
  for _, hold in ipairs(claim.holds) do
    local line = lines[hold[2]]
    if line and not line.isClear then
      line.isClear = true
      clear(line)
    end
  end
end
local answers = {}
for at, one in ipairs(all) do
  local known = read(one.bucket, one.id)
  answers[at] = known and renew(known, one.holds) or none()
end
return settledAnswers(answers, all)
