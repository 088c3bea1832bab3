--[[ remove_unknown.lua — removes the entries of a claim without a record: it was evicted, deleted or never made.
     The first write frees memory. ]]
local function sweep(claim, holds)
  dirty = true
  for _, hold in ipairs(holds) do
    local line, place = lineOf(hold[1], hold[2]), placeOf(claim, hold)
    if call('ZREM', line.admitted, place) + unqueue(line, place) > 0 then leftBy(line) end
  end
end
