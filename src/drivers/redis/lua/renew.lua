--[[ renew.lua — restarts the leases of claims, held and waiting alike, and answers for each. One round trip.
     KEYS  1 routes the call
     ARGV  the four of lib/prelude.lua, number of claims, then each claim (id, ttl, count, locks)
     Returns one answer for each claim, as claim.lua, or "b <end of grace period (ms)>": the claim is unknown or expired after
           a loss of data, which may have lost a renewal; if it was held, the caller may restore it
     Cost  O(claims x (admitted + expired entries)) ]]
--- include lib/prelude.lua
--- include lib/grace.lua
--- include lib/records.lua
--- include lib/queue.lua
--- include lib/entries.lua
--- include lib/tokens.lua
--- include lib/admission.lua
--- include lib/answers.lua
--- include lib/renewal.lua

local answers, claims = {}, {}
for index = 1, tonumber(nextArg()) do
  local claim, locks = nextClaim()
  claim.locks = locks
  claims[index] = claim
  answeredHere[claim.id] = true
end
for index, claim in ipairs(claims) do
  local existing = readClaim(claim.bucket, claim.id)
  if existing and inGracePeriod and not existing.ended and existing.state ~= 'r' and existing.expires <= nowMs then
    removeClaim(existing, claim.locks)
    call('DEL', existing.key)
    existing = nil
  end
  if existing then
    answers[index] = renewClaim(existing, claim.locks)
  else
    removeUnknown(claim, claim.locks)
    answers[index] = inGracePeriod and 'b ' .. graceEndsAt or encodeNone()
  end
end
return finalAnswers(answers, claims)
