--[[ store.lua — what every script of lines begins with: the time, the names of keys, how it writes. ]]
local call = redis.call
local root, inbox = ARGV[1], ARGV[2]
local time = call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)

local DAY = 86400000
local SLACK = 1000 -- lines and claims outlive the leases in them: the leases decide, not Redis's own expiry
local MOST_PASSED = 32
local SECOND = 1000
local looks = 2000
local dirty = false
local arrivals = 0
local asking = {} -- ids that this very call answers for: they need no push
local lines = {}
local unsettled = {}

local function text(number)
  return string.format('%.0f', number)
end

local function named(bucket, kind, name)
  return root .. '{' .. bucket .. '}:' .. kind .. ':' .. name
end

local function write(...)
  dirty = true
  return call(...)
end

local function keep(key, ms)
  if call('PTTL', key) < ms then write('PEXPIRE', key, ms) end
end
