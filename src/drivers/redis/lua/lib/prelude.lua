--[[ prelude.lua — the beginning of every script: the time and the names of keys. ]]
local call, match = redis.call, string.match
local namePrefix = ARGV[1]
local time = call('TIME')
local nowMicros = time[1] * 1000000 + time[2]
local nowMs = (nowMicros - nowMicros % 1000) / 1000
-- the same as text: formatting a large number takes as long as a command
local nowMicrosText = time[1] .. string.sub('00000' .. time[2], -6)
local nowMsText = string.sub(nowMicrosText, 1, -4)

local DAY = 86400000
local HOUR = 3600000
local KEY_TTL_MARGIN = 1000 -- ms by which keys outlive the leases in them: the leases decide, not the expiry of Redis
local hasWritten = false -- whether the script has written: from then on Redis refuses nothing

--- Formats tokens and microseconds. Smaller numbers need no formatting: Lua writes 14 digits.
local function formatInt(number)
  return number == nowMicros and nowMicrosText or string.format('%.0f', number)
end

local function keyName(bucket, kind, name)
  return namePrefix .. '{' .. bucket .. '}:' .. kind .. ':' .. name
end

--- A key of which each bucket has one.
local function bucketKey(bucket, kind)
  return namePrefix .. '{' .. bucket .. '}:' .. kind
end
