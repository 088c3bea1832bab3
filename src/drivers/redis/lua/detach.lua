--[[ detach.lua — detaches held claims: their leases no longer depend on the client, and the way they end is kept as a
     tombstone. One round trip.
     KEYS  1 routes the call
     ARGV  root, inbox, run record, longest ttl, number of claims, then for each: the time that its lease shall have left (at
           most the ttl counts), and the claim (id, ttl, count, locks)
     Returns a string with "1" for each claim that was held, else "0" ]]
--- include lib.lua
--- include lib/renewal.lua

--- Cuts the lease short. A later renewal restores the full lease.
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
    claim.state, claim.stepped = 'd', true -- makes `extend` restart the lease however much is left
    extend(claim, holds)
    if left < claim.ttl then shorten(claim, holds, left) end
    done[at] = '1'
  end
end
return table.concat(done)
