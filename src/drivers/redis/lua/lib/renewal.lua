--[[ renewal.lua — renews the lease of a claim that has a record. ]]
--- Restarts the lease, unless more than three quarters of it are left and its process was not found unreachable since. Its
--- first write is one that Redis does not refuse when memory is full.
local function extend(claim, holds)
  local heardAt = claim.expires - claim.ttl
  if now - heardAt < 0.25 * claim.ttl and not claim.stepped and claim.missed <= heardAt then return end
  claim.expires, claim.inbox = now + claim.ttl, inbox
  if not dirty then call('PEXPIRE', claim.key, claim.ttl) end
  dirty = true
  save(claim)
  for _, hold in ipairs(holds) do keepIndex(hold[1], claim.ttl) end
  for at = 1, claim.stage do
    local line = lineOf(holds[at][1], holds[at][2])
    if at < claim.stage or claim.token > 0 then
      call('ZADD', line.admitted, 'XX', claim.expires .. '', placeOf(claim, holds[at]))
      keep(line.admitted, claim.ttl + SLACK)
      line.used = nil
    else
      keep(line.waiting, claim.ttl + SLACK)
    end
  end
end

--- Whether the entries of the claim still exist: they may have been evicted or deleted.
local function stands(claim, holds)
  for at = 1, claim.stage do
    local line = lineOf(holds[at][1], holds[at][2])
    local key = (at < claim.stage or claim.token > 0) and line.admitted or line.waiting
    if not call('ZSCORE', key, placeOf(claim, holds[at])) then return false end
  end
  return true
end

--- Renews a claim and settles its queue if it waits: it may be granted now. Returns its answer.
local function renew(claim, holds)
  if claim.ended then return none(claim.ended) end
  if claim.state == 'r' then return none('revoked') end
  if claim.expires <= now then return none('expired') end
  if not stands(claim, holds) then
    leave(claim, holds)
    call('DEL', claim.key)
    return none()
  end
  extend(claim, holds)
  if claim.token == 0 then
    settle(lineOf(holds[claim.stage][1], holds[claim.stage][2]))
    claim = read(claim.bucket, claim.id)
    if not alive(claim) then return none() end
  end
  return answer(claim, recheckOf(claim, lineOf(holds[claim.stage][1], holds[claim.stage][2])))
end

--- Settles the queues that claims have left. A claim granted by that gets no push, so its earlier answer is replaced.
local function settledAnswers(answers, claims)
  settleAll()
  for at, claim in ipairs(claims) do
    local held = granted[claim.id]
    if held and string.sub(answers[at], 1, 1) == 'w' then answers[at] = answer(held, false) end
  end
  return answers
end
