--[[ arguments.lua — decodes the claims in a script's arguments. ]]
local inbox = ARGV[2]
local args = ARGV
local cursor = 4

local function nextArg()
  cursor = cursor + 1
  return args[cursor]
end

--- Reads id, ttl (as text, which Lua converts in arithmetic), count, then bucket, key, permits, limit of each lock.
local function nextClaim()
  local index, locks = cursor + 1, {}
  local count = tonumber(args[index + 2])
  cursor = cursor + 3 + 4 * count
  for from = index + 3, cursor, 4 do
    locks[#locks + 1] = { args[from], args[from + 1], args[from + 2], args[from + 3] }
  end
  local bucket, id = locks[1][1], args[index]
  local claim = { key = keyName(bucket, 'c', id), bucket = bucket, id = id, ttl = args[index + 1], count = count }
  return claim, locks
end
