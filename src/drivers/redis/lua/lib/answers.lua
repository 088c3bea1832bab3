--[[ answers.lua — encodes the answers for claims, as turn.lua describes them.
     needs    prelude.lua, grace.lua
     defines  encodeNone, encodeAnswer ]]
local function encodeNone(reason)
  return reason and 'n ' .. reason or 'n'
end

--- Encodes the answer for a held or waiting claim. `recheck`: for a waiting claim, the time to its next recheck (ms).
--- `isRecalled`: another claim waits for this held claim, which wants to know that.
local function encodeAnswer(claim, recheck, isRecalled)
  local times = claim.expires - nowMs .. ' ' .. (recheck and recheck .. ' ' or '') .. nowMsText
  if inGracePeriod then times = times .. ' ' .. graceEndsAt end
  if recheck then return 'w ' .. times end
  return (isRecalled and 'r ' or 'h ') .. formatInt(claim.token) .. ' ' .. claim.tokens .. ' ' .. times
end
