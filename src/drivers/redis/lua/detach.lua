--[[ detach.lua — held claims go their own way: a full lease from now on, and how they end is remembered. One trip.
     KEYS  1 where to send the call
     ARGV  root, inbox, birth record, longest ttl, number of claims, then each claim (id, ttl, count, holds)
     Gives a string with "1" for each claim that was held, else "0" ]]
--- include line.lua
--- include line/renewal.lua

local done = {}
for at = 1, tonumber(take()) do
  local asked, holds = takeClaim()
  local claim = read(asked.bucket, asked.id)
  done[at] = '0'
  if alive(claim) and claim.token > 0 and claim.state ~= 'r' and stands(claim, holds) then
    claim.state, claim.stepped = 'd', true -- extends whatever is left
    extend(claim, holds)
    done[at] = '1'
  end
end
return table.concat(done)
