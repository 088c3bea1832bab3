--[[ answers.lua — encodes the answer for a held or waiting claim. ]]
--- `recheck`: for a waiting claim, the time to its next recheck (ms).
local function encodeAnswer(claim, recheck)
  local times = claim.expires - nowMs .. ' ' .. (recheck and recheck .. ' ' or '') .. nowMsText
  if inGracePeriod then times = times .. ' ' .. graceEndsAt end
  if recheck then return 'w ' .. times end
  return 'h ' .. formatInt(claim.token) .. ' ' .. claim.tokens .. ' ' .. times
end
