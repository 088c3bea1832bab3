--[[ prelude.lua — the beginning of every script: the time and the names of keys. ]]
local call, match = redis.call, string.match
local root = ARGV[1]
local time = call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = (micros - micros % 1000) / 1000
-- the same as text: formatting a large number takes as long as a command
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local clock = string.sub(stamp, 1, -4)

local DAY = 86400000
local HOUR = 3600000
local SLACK = 1000 -- ms by which keys outlive the leases in them: the leases decide, not the expiry of Redis
local dirty = false -- whether the script has written: from then on Redis refuses nothing

--- Formats tokens and microseconds. Smaller numbers need no formatting: Lua writes 14 digits.
local function text(number)
  return number == micros and stamp or string.format('%.0f', number)
end

local function named(bucket, kind, name)
  return root .. '{' .. bucket .. '}:' .. kind .. ':' .. name
end

--- A key of which each bucket has one.
local function shared(bucket, kind)
  return root .. '{' .. bucket .. '}:' .. kind
end
