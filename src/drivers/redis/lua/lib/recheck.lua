--[[ recheck.lua — when waiting claims should recheck, and the answer "none". ]]
--- The time until a lease ahead of the claim may end (ms); false if the claim is held.
local function recheckOf(claim, line)
  if claim.token > 0 then return false end
  if looks == 0 then return 50 end
  look(line)
  local front = frontOf(line)
  local _, id = parse(front or '')
  local ends = math.huge
  if front and id ~= claim.id then
    if line.asked ~= front then
      local ahead = frontAlive(line)
      look(line)
      line.asked, line.askedEnds = line.front, ahead and ahead.expires or now
    end
    ends = line.askedEnds
  end
  local at = math.min(now + claim.ttl, line.soonest, ends)
  if breathing then at = math.min(at, opensAt) end
  return math.max(at - now, 1)
end

local function none(how)
  return how and 'n ' .. how or 'n'
end
