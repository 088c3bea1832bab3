--[[ release.lua — removes claims, waiting or held, grants who is admitted now and says so to their inboxes. One trip.
     KEYS  1 where to send the call
     ARGV  root, inbox, birth record, longest ttl, number of claims, then for each: "1" if a `claim` call of it may still come, else "0"; the claim
     Gives a string with "1" for each claim that was there, else "0"
     Work  O(claims x (admitted + run out)), and a publication for each grant. Its first write is one that frees: it
           succeeds when memory is full. ]]
--- include line.lua

local there = {}
for at = 1, tonumber(take()) do
  local unanswered = take() == '1'
  local asked, holds = takeClaim()
  local claim = read(asked.bucket, asked.id)
  there[at] = '0'
  if claim and not claim.ended then
    local wasAlive = alive(claim) and not claim.revoked
    if leave(claim, holds) == claim.stage and wasAlive then there[at] = '1' end
  elseif not claim then
    sweep(asked, holds)
    -- it may have been there before the store forgot; nobody was granted since. Nor is it placed anew by a late call
    if breathing then there[at], unanswered = '1', true end
  end
  if unanswered then
    bury(named(asked.bucket, 'c', asked.id), 'released', asked.ttl)
  elseif claim and not claim.ended then
    if alive(claim) and (claim.revoked or claim.detached) then
      bury(claim.key, claim.revoked or 'released', claim.ttl)
    elseif alive(claim) then
      write('DEL', claim.key)
    end
  end
end
settleAll()
return table.concat(there)
