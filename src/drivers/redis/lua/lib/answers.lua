--[[ answers.lua — encodes the answer for a held or waiting claim. ]]
--- `recheck`: for a waiting claim, the time to its next recheck (ms).
local function answer(claim, recheck)
  local times = claim.expires - now .. ' ' .. (recheck and recheck .. ' ' or '') .. clock
  if breathing then times = times .. ' ' .. opensAt end
  if recheck then return 'w ' .. times end
  return 'h ' .. text(claim.token) .. ' ' .. claim.tokens .. ' ' .. times
end
