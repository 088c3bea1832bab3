--[[ prelude.lua — the beginning of the scripts: the time and the names of keys.
     needs    nothing
     defines  call, try, match, sub, namePrefix, inbox, nowMicros, nowMs, nowMicrosText, nowMsText, now, DAY, HOUR,
              HEAD, HEAD_SIZE, formatInt, hashName

     The scripts keep the queues of keys. They restate lock-table/admission.ts (an entry is admitted if its permits fit
     beside those admitted before it) and lock-table/token-issuer.ts (token = max(last + 1, floor, clock)); the oracle of the
     conformance suite compares them. docs/design/redis.md describes the layout and its states.

     ARGV of every script that changes queues:
           1 prefix of all names ("holdfast:3:"), 2 inbox of the caller, 3 "" or, with guardDataLoss, the longest ttl (ms), a
           space and the key of the run record; then the items
     Keys; `b` is the bucket of a key (two hex digits, the hash tag that spreads keys over 256 buckets):
       <prefix>{b}:h        hash, everything that has no order. Its fields:
           k:<key>          the state of a key: the record of its only holder (thin form), or "F" (full form); none: free
           c:<id>           the record of a claim that waits, or that holds keys in full form; or a tombstone
           m:<key>\0<b><id> a claim over several keys that has not entered this queue yet, for lists
           n                the last number issued in the bucket: the highest token or arrival
           e                when the time to live of the hash was last set (s)
       <prefix>{b}:a:<key>  sorted set, in full form only: admitted entries by the end of their lease (ms), and their totals
       <prefix>{b}:w:<key>  sorted set, only while claims wait: waiting entries by arrival
       <prefix>{b}:b        the run record: replication id, end of the grace period, and token bounds (grace.lua)

     Invariants
     - A script reads TIME once. No client's clock counts, and all writes of a script use that one time.
     - A claim enters a queue only after it was admitted in the queue of its previous key. So queues are visited in
       ascending order only.
     - Every key has a time to live, except the run record. ]]
local call, try, match, sub = redis.call, redis.pcall, string.match, string.sub
local namePrefix, inbox = ARGV[1], ARGV[2]
local time = call('TIME')
local now = tonumber(time[1])
local nowMicros = now * 1000000 + time[2]
local nowMs = (nowMicros - nowMicros % 1000) / 1000
-- the same as text: to format a large number takes as long as a command
local nowMicrosText = time[1] .. sub('00000' .. time[2], -6)
local nowMsText = sub(nowMicrosText, 1, -4)

local DAY = 86400000
local HOUR = 3600000
-- the head of a record: form ("T"hin, "C"laim), "1" if claims wait (thin only), state; end of the lease, token (0: waiting),
-- when it was claimed, when its process was last unreachable (0: never), number of queues entered
local HEAD = '>c3ddddB'
local HEAD_SIZE = 36

--- Formats tokens and microseconds. Smaller numbers need no formatting: Lua writes 14 digits.
local function formatInt(number)
  return number == nowMicros and nowMicrosText or string.format('%.0f', number)
end

local function hashName(bucket)
  return namePrefix .. '{' .. bucket .. '}:h'
end
