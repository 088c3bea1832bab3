--[[ answers.lua — where a claim stands. ]]
--- `recheck`: if it waits, when it should ask again (ms from now).
local function answer(claim, recheck)
  local times = claim.expires - now .. ' ' .. (recheck and recheck .. ' ' or '') .. clock
  if breathing then times = times .. ' ' .. opensAt end
  if recheck then return 'w ' .. times end
  return 'h ' .. text(claim.token) .. ' ' .. claim.tokens .. ' ' .. times
end
