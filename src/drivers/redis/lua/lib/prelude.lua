--[[ prelude.lua — the beginning of the scripts: the time, and what all of them use.
     needs    nothing
     defines  call, try, match, sub, inbox, time, now, nowMicros, nowMs, nowMsText, formatInt

     The scripts keep the queues of keys. docs/design/rules.md has the rules of admission and of tokens, and
     docs/design/redis.md describes the layout and its states, names.lua the keys, records.lua what is in them.

     ARGV of every script that changes queues:
           1 prefix of all names ("holdfast:3:"), 2 inbox of the caller, 3 "" or, with guardDataLoss, the longest ttl
           (ms), a space and the key of the run record; then the items

     Invariants
     - A script reads TIME once. No client's clock counts, and all writes of a script use that one time.
     - A claim enters a queue only after it was admitted in the queue of its previous key. So queues are visited in
       ascending order only.
     - Every key has a time to live, except the run record. ]]
local DAY <const> = 86400000 -- ms
-- The time to live of a hash is set once in so many seconds, for a day at least: such ttls end before it
local EXTENSION_INTERVAL <const> = 3600 -- s
local SHORT_TTL <const> = 10000000 -- ms
local SHORT_TTL_DIGITS <const> = 7
local FRONT_RECHECK_MS <const> = 200 -- so soon the first claim that waits asks again while a holder is recalled

local call, try, match, sub = redis.call, redis.pcall, string.match, string.sub
local inbox = ARGV[2]
local time = call('TIME')
local now = tonumber(time[1])
local nowMicros = now * 1000000 + time[2]
local nowMs = (nowMicros - nowMicros % 1000) / 1000
-- the same as text: to format a large number takes as long as a command
local nowMicrosText = time[1] .. sub('00000' .. time[2], -6)
local nowMsText = sub(nowMicrosText, 1, -4)
--- include names.lua

--- Formats tokens and microseconds. Smaller numbers need no formatting: Lua writes 14 digits.
local function formatInt(number)
  return number == nowMicros and nowMicrosText or string.format('%.0f', number)
end
