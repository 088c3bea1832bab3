--[[ remove_unknown.lua — what is left in lines of a claim that is not known (any more): it was evicted, deleted, or never placed.
     Its first write is one that frees. ]]
local function sweep(claim, holds)
  dirty = true
  for _, hold in ipairs(holds) do
    local line, place = lineOf(hold[1], hold[2]), placeOf(claim, hold)
    if call('ZREM', line.admitted, place) + unqueue(line, place) > 0 then leftBy(line) end
  end
end
