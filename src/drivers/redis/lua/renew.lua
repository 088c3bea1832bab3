--[[ renew.lua — restarts the leases of claims, held and waiting alike, and answers for each. One round trip.
     KEYS  1 routes the call
     ARGV  root, inbox, run record, longest ttl, number of claims, then each claim (id, ttl, count, locks)
     Returns one answer for each claim, as claim.lua, or "b <end of grace period (ms)>": the claim is unknown or expired after
           a loss of data, which may have lost a renewal; if it was held, the caller may restore it
     Cost  O(claims x (admitted + expired entries)) ]]
--- include lib.lua
--- include lib/answers.lua
--- include lib/recheck.lua
--- include lib/renewal.lua
--- include lib/remove_unknown.lua

local answers, claims = {}, {}
for at = 1, tonumber(take()) do
  local claim, holds = takeClaim()
  claim.holds = holds
  claims[at] = claim
  asking[claim.id] = true
end
for at, claim in ipairs(claims) do
  local known = read(claim.bucket, claim.id)
  if known and breathing and not known.ended and known.state ~= 'r' and known.expires <= now then
    leave(known, claim.holds)
    call('DEL', known.key)
    known = nil
  end
  if known then
    answers[at] = renew(known, claim.holds)
  else
    sweep(claim, claim.holds)
    answers[at] = breathing and 'b ' .. opensAt or none()
  end
end
return settledAnswers(answers, claims)
