--[[ claim.lua — places a claim, or finds it by its id, and says where it stands. One trip.
     KEYS  1 any name of the bucket of its first key: where to send the call
     ARGV  root, inbox, birth record, longest ttl, the claim (id, ttl, count, holds), tokens, floor, waits ("1" or "0"), label, holds as JSON
     Gives "h <token> <tokens> <ttl left> <store ms>" | "w <ttl left> <recheck> <store ms>" | "n [how it ended]" | "f":
           the floor is more than a day ahead of the clock. A store that has forgotten adds to "h" and "w" from when
           on it grants again (ms)
     Work  O(admitted + run out) a line ]]
--- include line.lua

local claim, holds = takeClaim()
local tokens, floor, waits, label, json = tonumber(take()), tonumber(take()), take() == '1', take(), take()
asking[claim.id] = true

local known = read(claim.bucket, claim.id)
if known then
  local said = renew(known, holds)
  settleAll()
  return said
end
if floor > micros + DAY * 1000 then return 'f' end

local function isFree(line, hold)
  return not breathing and not line.front and line.used + hold[3] <= tonumber(hold[4])
end

if not waits then
  for _, hold in ipairs(holds) do
    local line = lineOf(hold[1], hold[2])
    settle(line)
    if not isFree(line, hold) then return none() end
  end
end

claim.key = named(claim.bucket, 'c', claim.id)
claim.inbox, claim.tokens, claim.floor, claim.holds = inbox, tokens, floor, holds
claim.expires, claim.token, claim.stage = now + claim.ttl, 0, 0
local record = { 'f', text(floor), 'l', label }
local function note(field, value)
  record[#record + 1] = field
  record[#record + 1] = value
end

-- the first write is one that Redis refuses if it must (for want of memory), while nothing is written
local line
while claim.token == 0 do
  claim.stage = claim.stage + 1
  local hold = holds[claim.stage]
  local place = placeOf(claim, hold)
  line = lineOf(hold[1], hold[2])
  settle(line)
  if not isFree(line, hold) then
    note('a' .. claim.stage, text(queue(line, place, claim.ttl)))
    break
  end
  if isIdle(line) then enlist(line.bucket, line.name, claim.ttl) end
  admit(line, place, tonumber(hold[3]), claim.expires, claim.ttl)
  note('a' .. claim.stage, text(arrive()))
  if claim.stage == claim.count then grant(claim, line) end
end
if claim.count > 1 then note('h', json) end
write('HSET', claim.key, 'e', claim.expires, 't', claim.ttl, 'k', text(claim.token), 'n', tokens, 'c', inbox, 's',
  claim.stage, 'z', claim.count, 'p', now, 'q', waits and '1' or '0', unpack(record))
write('PEXPIRE', claim.key, claim.ttl * 2 + SLACK)
-- where it is wanted but does not stand yet
if claim.count > 1 and claim.token == 0 then
  for _, hold in ipairs(holds) do enlist(hold[1], hold[2] .. '\0' .. claim.bucket .. claim.id, claim.ttl) end
end
if micros % 8 == 0 then weed(claim.bucket) end
local said = answer(claim, line)
settleAll()
return said
