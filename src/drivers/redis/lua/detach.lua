--[[ detach.lua — held claims go their own way: a lease of their own from now on, and how they end is remembered. One trip.
     KEYS  1 where to send the call
     ARGV  root, inbox, birth record, longest ttl, number of claims, then for each: what its lease is to have left (more
           than its ttl: the ttl), and the claim (id, ttl, count, holds)
     Gives a string with "1" for each claim that was held, else "0" ]]
--- include lib.lua
--- include lib/renewal.lua

--- The lease ends sooner than a full one. Whoever renews it restarts the full one.
local function shorten(claim, holds, left)
  claim.expires = now + left
  save(claim)
  for at = 1, claim.count do
    local line = lineOf(holds[at][1], holds[at][2])
    call('ZADD', line.admitted, 'XX', claim.expires .. '', placeOf(claim, holds[at]))
    line.used = nil
  end
end

local done = {}
for at = 1, tonumber(take()) do
  local left = tonumber(take())
  local asked, holds = takeClaim()
  local claim = read(asked.bucket, asked.id)
  done[at] = '0'
  if alive(claim) and claim.token > 0 and claim.state ~= 'r' and stands(claim, holds) then
    claim.state, claim.stepped = 'd', true -- extends whatever is left
    extend(claim, holds)
    if left < claim.ttl then shorten(claim, holds, left) end
    done[at] = '1'
  end
end
return table.concat(done)
