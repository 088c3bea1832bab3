--[[ claim.lua — places a claim, or finds it by its id, and says where it stands. One trip.
     KEYS  1 any name of the bucket of its first key: where to send the call
     ARGV  root, inbox, birth record, longest ttl, the claim (id, ttl, count, holds), tokens, floor, waits ("1" or "0"), label, holds as JSON
     Gives "h <token> <tokens> <ttl left> <store ms>" | "w <ttl left> <recheck> <store ms>" | "n [how it ended]" | "f":
           the floor is more than a day ahead of the clock. A store that has forgotten adds to "h" and "w" from when
           on it grants again (ms)
     Work  O(admitted + run out) a line ]]

-- The most usual call: one hold, on a key where nobody has a place. It does what the rest would do, with fewer commands
-- and before the functions of lines are made, which takes as long again. Where anything is unusual the rest decides:
-- until then nothing is written, and the time is not read. One in eight, by the random end of its id, goes there to weed.
local weeds = string.byte(ARGV[5], -1) % 8 == 0
if ARGV[7] == '1' and ARGV[3] == '' and not weeds then
  local call, id, ttl, bucket, name = redis.call, ARGV[5], tonumber(ARGV[6]), ARGV[8], ARGV[9]
  local prefix = ARGV[1] .. '{' .. bucket .. '}:'
  local claim, admitted = prefix .. 'c:' .. id, prefix .. 'a:' .. name
  if tonumber(ARGV[10]) <= tonumber(ARGV[11]) and call('EXISTS', claim, admitted, prefix .. 'w:' .. name) == 0 then
    local time = call('TIME')
    local micros = time[1] * 1000000 + time[2]
    local floor, day = tonumber(ARGV[13]), 86400000
    if floor > micros + day * 1000 then return 'f' end
    local now = math.floor(micros / 1000)
    local index, last, kept = prefix .. 'i', prefix .. 'n', math.max(ttl, day) * 2
    local full, today = string.format('%.0f', ttl), string.format('%.0f', now)
    local expires = string.format('%.0f', now + ttl)
    local number = math.max(micros, floor, (call('GET', last) or 0) + 1)
    local token = string.format('%.0f', number)
    call('ZADD', index, '0', name)
    if call('PTTL', index) < kept then call('PEXPIRE', index, kept) end
    call('ZADD', admitted, expires, bucket .. id .. ':' .. ARGV[10] .. ':' .. ARGV[11] .. ':' .. full)
    call('PEXPIRE', admitted, ttl + 1000)
    call('SET', last, string.format('%.0f', number + ARGV[12] - 1), 'PX', '172800000')
    call('HSET', claim, 'e', expires, 't', full, 'k', token, 'n', ARGV[12], 'c', ARGV[2], 's', '1', 'z', '1', 'p', today,
      'q', ARGV[14], 'f', ARGV[13], 'l', ARGV[15], 'a1', string.format('%.0f', micros + 1))
    call('PEXPIRE', claim, ttl * 2 + 1000)
    return 'h ' .. token .. ' ' .. ARGV[12] .. ' ' .. full .. ' ' .. today
  end
end

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
if weeds then weed(claim.bucket) end
local said = answer(claim, line)
settleAll()
return said
