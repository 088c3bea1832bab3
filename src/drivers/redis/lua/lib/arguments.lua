--[[ arguments.lua — decodes the claims in a script's arguments. ]]
local inbox = ARGV[2]
local words = ARGV
local cursor = 4

local function take()
  cursor = cursor + 1
  return words[cursor]
end

--- Reads id, ttl (as text, which Lua converts in arithmetic), count, then bucket, key, permits, limit of each lock.
local function takeClaim()
  local at, holds = cursor + 1, {}
  local count = tonumber(words[at + 2])
  cursor = cursor + 3 + 4 * count
  for from = at + 3, cursor, 4 do
    holds[#holds + 1] = { words[from], words[from + 1], words[from + 2], words[from + 3] }
  end
  local bucket, id = holds[1][1], words[at]
  local claim = { key = named(bucket, 'c', id), bucket = bucket, id = id, ttl = words[at + 1], count = count }
  return claim, holds
end
