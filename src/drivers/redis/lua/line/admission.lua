--[[ admission.lua — who is admitted, and who is passed over. ]]
local settle

--- Admitted in this line, the claim enters its next one.
local function goOn(line, claim, place, parsed)
  local holds = holdsOf(claim)
  write('ZREM', line.waiting, place)
  admit(line, place, parsed.permits, claim.expires, claim.ttl)
  claim.stage = claim.stage + 1
  local hold = holds[claim.stage]
  local following = lineOf(hold[1], hold[2])
  settle(following)
  local arrival = queue(following, placeOf(claim, hold), claim.ttl)
  write('HSET', claim.key, 's', claim.stage, 'a' .. claim.stage, text(arrival))
  settle(following)
end

--- Grants the place of a claim in its last line, if its process hears of it. Says so.
local function offer(line, claim, place, permits)
  local token = mint(claim, line)
  if not asking[claim.id] then
    -- nothing may be said that is refused afterwards: after any write nothing is
    if not dirty then write('PEXPIRE', line.waiting, claim.ttl + DAY) end
    local words = { claim.id, text(token), text(claim.tokens), text(claim.expires - now) }
    if not tell(claim, table.concat(words, ' ')) then return false end
  end
  write('ZREM', line.waiting, place)
  claim.token = token
  write('HSET', claim.key, 'k', text(token), 'e', claim.expires)
  grant(claim, line)
  admit(line, place, permits, claim.expires, claim.ttl)
  return true
end

--- The claim's process does not listen: it loses a turn, and if that happens again a second later without a word from
--- it in between, its place. Does it keep its place?
local function passOver(claim, line, parsed)
  local heardAt = claim.expires - claim.ttl
  if claim.missed > heardAt and now - claim.missed >= SECOND then
    local holds = claim.count > 1 and holdsOf(claim) or { { line.bucket, line.name, parsed.hold[3], parsed.hold[4] } }
    leave(claim, holds)
    write('DEL', claim.key)
    return false
  end
  if claim.missed <= heardAt then write('HSET', claim.key, 'm', now) end
  return true
end

local function blocks(passed, line)
  for _, one in ipairs(passed) do
    if line.used + one.parsed.permits > one.parsed.limit then return true end
  end
  return false
end

--- Admits whoever may go in this line. Those whose processes do not listen are passed over; if nobody listens, the
--- front one is granted for a second, which its renewal makes whole.
settle = function(line)
  local passed, granted = {}, false
  while true do
    look(line)
    local place = call('ZRANGE', line.waiting, #passed, #passed)[1]
    line.front = #passed > 0 and passed[1].place or place
    if not place or looks == 0 or breathing then break end
    local parsed = parse(place)
    if line.used + parsed.permits > parsed.limit then break end
    looks = looks - 1
    local claim = read(parsed.bucket, parsed.id)
    if not alive(claim) then
      write('ZREM', line.waiting, place)
    elseif claim.stage < claim.count then
      goOn(line, claim, place, parsed)
    elseif offer(line, claim, place, parsed.permits) then
      granted = true
    elseif passOver(claim, line, parsed) then
      passed[#passed + 1] = { claim = claim, place = place, parsed = parsed }
    end
    if #passed == MOST_PASSED or (granted and blocks(passed, line)) then break end
  end
  if #passed > 0 and not granted then
    local first = passed[1]
    first.claim.expires = math.min(first.claim.expires, now + SECOND)
    asking[first.claim.id] = true
    offer(line, first.claim, first.place, first.parsed.permits)
    line.front = call('ZRANGE', line.waiting, 0, 0)[1]
  end
end

--- Settles the lines that somebody has left.
local function settleAll()
  local at = 1
  while unsettled[at] and looks > 0 do
    local line = unsettled[at]
    line.left = false
    settle(line)
    tidy(line)
    at = at + 1
  end
end
