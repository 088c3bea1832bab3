--[[ renew.lua — restarts the leases of claims, held and waiting alike, and says where each stands. One trip.
     KEYS  1 where to send the call
     ARGV  root, inbox, birth record, longest ttl, number of claims, then each claim (id, ttl, count, holds)
     Gives one answer a claim, as claim.lua, or "b <from when on it grants (ms)>": not there or run out, but the store has
           forgotten since (a renewal, perhaps), and what was held may be placed anew
     Work  O(claims x (admitted + run out)) ]]
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
