--[[ prelude.lua — the beginning of the scripts: the time, the names of keys, the arguments.
     needs    nothing
     defines  call, match, namePrefix, inbox, nowMicros, nowMs, nowMicrosText, nowMsText, DAY, HOUR, KEY_TTL_MARGIN,
              hasWritten, formatInt, keyName, bucketKey, nextArg, nextClaim

     The scripts keep the queues of keys. They restate lock-table/admission.ts (an entry is admitted if its permits fit
     beside those admitted before it) and lock-table/token-issuer.ts (token = max(last + 1, floor, clock)); the oracle of the
     conformance suite compares them.

     ARGV of every script that changes queues:
           1 prefix of all names ("holdfast:1:"), 2 inbox of the caller, 3 the key of the run record ("": guardDataLoss is
           off), 4 with it the longest ttl (ms)
     Names; `b` is the bucket of a key (two hex digits, the hash tag that spreads keys over 256 buckets):
       <prefix>{b}:a:<key>  sorted set: admitted entries by the end of their lease (ms)
       <prefix>{b}:w:<key>  sorted set: waiting entries by arrival (microseconds)
       <prefix>{b}:c:<id>   the record of a claim, in the bucket of its first key (records.lua)
       <prefix>{b}:n        the highest token granted in the bucket; kept for two days after its last grant
       <prefix>{b}:b        the run record: replication id, end of the grace period, and token bounds (grace.lua)
       <prefix>{b}:i        sorted set by name, the index: keys with entries, and key .. "\0" .. bucket .. id of claims over
                            several keys

     Invariants
     - A script reads TIME once. No client's clock counts, and all writes of a script use that one time.
     - Whatever Redis may refuse comes before the first write, since Redis does not roll back. After one write it refuses
       nothing more, not even for lack of memory. So a script that must succeed begins with a write that frees memory.
     - A claim with all permits should be alone among the admitted entries of its queue, but no script relies on that: when
       it leaves, the queue is read again.
     - A claim enters a queue only after it was admitted in the queue of its previous key. So queues are visited in
       ascending order only.
     - Loops end: a script reads at most `scanBudget` waiting entries.
     - Every key has a time to live, except the run record. ]]
local call, match = redis.call, string.match
local namePrefix, inbox = ARGV[1], ARGV[2]
local time = call('TIME')
local nowMicros = time[1] * 1000000 + time[2]
local nowMs = (nowMicros - nowMicros % 1000) / 1000
-- the same as text: to format a large number takes as long as a command
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

local cursor = 4 -- index of the last argument that was read

local function nextArg()
  cursor = cursor + 1
  return ARGV[cursor]
end

--- Reads id, ttl (as text, which Lua converts in arithmetic), count, then bucket, key, permits, limit of each lock.
local function nextClaim()
  local start, locks = cursor + 1, {}
  local count = tonumber(ARGV[start + 2])
  cursor = cursor + 3 + 4 * count
  for from = start + 3, cursor, 4 do
    locks[#locks + 1] = { ARGV[from], ARGV[from + 1], ARGV[from + 2], ARGV[from + 3] }
  end
  local bucket, id = locks[1][1], ARGV[start]
  local claim = { key = keyName(bucket, 'c', id), bucket = bucket, id = id, ttl = ARGV[start + 1], count = count }
  return claim, locks
end
