--[[ replace.lua — places claims anew that were held when the store forgot, with the tokens they have. One trip.
     KEYS  1 where to send the call
     ARGV  root, inbox, birth record, longest ttl, number of claims, then for each: the claim, tokens, floor, waits, label,
           holds as JSON, and its token
     Gives one answer a claim, as claim.lua
     A hold is held as asserted: the admission rule was asked when it was granted. Only if a store that forgot a part
     remembers others that conflict with it, those with the lowest tokens end, until all left in the line could have been
     granted in the order of their tokens (as core/seats.ts has it).
     Work  O(claims x admitted) ]]
--- include line.lua

--- The claims admitted in a line, by token; who waits in a later line of its own has none yet.
local function holdersOf(line)
  local found = {}
  for _, place in ipairs(call('ZRANGE', line.admitted, 0, -1)) do
    local parsed = parse(place)
    local claim = read(parsed.bucket, parsed.id)
    if alive(claim) then found[#found + 1] = { claim = claim, parsed = parsed } end
  end
  table.sort(found, function(one, other) return one.claim.token < other.claim.token end)
  return found
end

--- The claim that must go; nil if those left fit.
local function overfull(line)
  local used = 0
  local holders = holdersOf(line)
  for _, one in ipairs(holders) do
    if used + one.parsed.permits > one.parsed.limit then return holders[1] end
    used = used + one.parsed.permits
  end
end

local function clear(line)
  local most = overfull(line)
  while most do
    local hold = { line.bucket, line.name, most.parsed.hold[3], most.parsed.hold[4] }
    leave(most.claim, most.claim.count > 1 and holdsOf(most.claim) or { hold })
    write('DEL', most.claim.key)
    most = overfull(line)
  end
end

local function place(claim, holds, terms)
  claim.key, claim.inbox, claim.stage = named(claim.bucket, 'c', claim.id), inbox, claim.count
  claim.expires, claim.token, claim.tokens, claim.holds = now + claim.ttl, terms.token, terms.tokens, holds
  write('DEL', claim.key) -- the first write is one that Redis never refuses
  local record = {}
  for at, hold in ipairs(holds) do
    local line = lineOf(hold[1], hold[2])
    look(line)
    line.front = call('ZRANGE', line.waiting, 0, 0)[1]
    if isIdle(line) then enlist(line.bucket, line.name, claim.ttl) end
    admit(line, placeOf(claim, hold), tonumber(hold[3]), claim.expires, claim.ttl)
    record[#record + 1] = 'a' .. at
    record[#record + 1] = text(terms.token)
  end
  if claim.count > 1 then
    record[#record + 1] = 'h'
    record[#record + 1] = terms.json
  end
  write('HSET', claim.key, 'e', claim.expires, 't', claim.ttl, 'k', text(claim.token), 'n', claim.tokens, 'c', inbox, 's',
    claim.stage, 'z', claim.count, 'p', now, 'q', terms.waits, 'f', terms.floor, 'l', terms.label, unpack(record))
  write('PEXPIRE', claim.key, claim.ttl * 2 + SLACK)
  local last = terms.token + terms.tokens - 1
  for _, hold in ipairs(holds) do
    if tonumber(call('GET', counter(hold[1])) or 0) < last then
      write('SET', counter(hold[1]), text(last), 'PX', 2 * DAY)
    end
  end
  for _, hold in ipairs(holds) do clear(lines[hold[2]]) end
end

local asked = {}
for at = 1, tonumber(take()) do
  local claim, holds = takeClaim()
  local terms = { tokens = tonumber(take()), floor = take(), waits = take(), label = take(), json = take() }
  terms.token = tonumber(take())
  asked[at] = { claim = claim, holds = holds }
  asking[claim.id] = true
  if breathing and terms.token <= micros + DAY * 1000 and not read(claim.bucket, claim.id) then
    place(claim, holds, terms)
  end
end
-- only now, since of two that conflict the later one may be the one that stays
local answers = {}
for at, one in ipairs(asked) do
  local known = read(one.claim.bucket, one.claim.id)
  answers[at] = known and renew(known, one.holds) or none()
end
settleAll()
return answers
