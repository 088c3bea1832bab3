--[[ release.lua — removes claims, waiting or held, grants who is admitted now and says so to their inboxes. One trip.
     KEYS  1 where to send the call
     ARGV  root, inbox, birth record, longest ttl, number of claims, then for each: "1" if a `claim` call of it may still come, else "0"; the claim
     Gives a string with "1" for each claim that was there, else "0"
     Work  O(claims x (admitted + run out)), and a publication for each grant. Its first write is one that frees: it
           succeeds when memory is full. ]]
--- include line/store.lua
--- include line/birth.lua
--- include line/forms.lua
--- include line/seats.lua
--- include line/places.lua
--- include line/arguments.lua

local there = {}
for at = 1, tonumber(take()) do
  local unanswered = take() == '1'
  local asked, holds = takeClaim()
  local claim = read(asked.bucket, asked.id)
  there[at] = '0'
  if not claim then
    --- include line/sweep.lua
    sweep(asked, holds)
    -- it may have been there before the store forgot; nobody was granted since. Nor is it placed anew by a late call
    if breathing then there[at], unanswered = '1', true end
  elseif not claim.ended then
    local isAll = leave(claim, holds) == claim.stage
    if alive(claim) then
      if isAll and claim.state ~= 'r' then there[at] = '1' end
      if claim.state ~= 'o' then
        bury(claim.key, claim.state == 'r' and 'revoked' or 'released', claim.ttl)
      elseif not unanswered then
        call('DEL', claim.key)
      end
    end
  end
  if unanswered then bury(asked.key, 'released', asked.ttl) end
end
local isWanted = false
for _, line in ipairs(unsettled) do
  look(line)
  isWanted = isWanted or frontOf(line)
  if isIdle(line) then call('ZREM', shared(line.bucket, 'i'), line.name) end
end
if isWanted then
  --- include line/queue.lua
  --- include line/tokens.lua
  --- include line/admission.lua
  settleAll()
end
return table.concat(there)
