--[[ remove_unknown.lua — removes the entries of a claim without a record: it was evicted, deleted or never made.
     The first write frees memory. ]]
local function removeUnknown(claim, locks)
  hasWritten = true
  for _, lock in ipairs(locks) do
    local queue, entry = getQueue(lock[1], lock[2]), formatEntry(claim, lock)
    if call('ZREM', queue.admitted, entry) + removeWaiting(queue, entry) > 0 then markTouched(queue) end
  end
end
