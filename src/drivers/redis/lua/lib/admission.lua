--[[ admission.lua — who is admitted, and who is passed over since its process does not listen (an unreachable waiter).

     Invariants
     - Only `settle` admits those who wait, and everyone fits beside the sum of those admitted at that moment: whoever leaves
       takes the sum along (`leftBy`), and `look` reads it again before it is asked for.
     - Whoever is granted, or goes on to its next queue, is let through: it holds its place here. Once somebody was let through,
       nobody is granted for want of listeners; and who is granted so stands first and fits like anyone.
     - Nothing is said before it is written: `offer`.
     - A script that has settled a line leaves nobody in front who fits, but for those who are unreachable. ]]
local MOST_PASSED = 32
local SECOND = 1000
local unreachable = {} -- by inbox, as far as this script has found out: nothing changes that while it runs
local granted = {} -- claims that this call answers for, by id, which it granted after it came to them

--- Whoever called hears it in the answer, where that has room for it.
local function hearsAnswer(claim)
  return told and claim.inbox == inbox
end

--- In a Cluster an inbox may have been left behind on a replica, which hears all that is published there: so it is asked
--- first, with nothing, and hears no grant that is not counted. Elsewhere only a message tells who hears it.
local function isUnreachable(claim)
  if hearsAnswer(claim) then return false end
  local home = claim.inbox
  if unreachable[home] == nil and string.find(home, '{', 1, true) then
    unreachable[home] = redis.pcall('SPUBLISH', home, '') == 0
  end
  return unreachable[home]
end

--- Says it to the claim's process; was it listening? An error of Redis (no right to publish) is no sign of that. What is
--- published is kept from the replicas, where an inbox may have been left behind.
local function tell(claim, message)
  if hearsAnswer(claim) then
    told[#told + 1] = message
    return true
  end
  if isUnreachable(claim) then return false end
  local home = claim.inbox
  if string.find(home, '{', 1, true) then
    redis.pcall('SPUBLISH', home, message)
    return true
  end
  redis.set_repl(redis.REPL_NONE)
  unreachable[home] = redis.pcall('PUBLISH', home, message) == 0
  redis.set_repl(redis.REPL_ALL)
  return not unreachable[home]
end

--- After any write Redis refuses none for want of memory: here the first one frees, and changes nothing.
local function beginWrites(line)
  if not dirty then call('ZREM', line.waiting, '') end
  dirty = true
end

--- Does the claim wait in this very line? A script that was refused a command may have left its place behind.
local function waitsIn(line, claim)
  return alive(claim) and claim.token == 0 and (claim.count == 1 or holdsOf(claim)[claim.stage][2] == line.name)
end

--- Admitted in this line, the claim enters its next one.
local function goOn(line, claim, place, permits)
  local hold = holdsOf(claim)[claim.stage + 1]
  local following = lineOf(hold[1], hold[2])
  look(following)
  beginWrites(line)
  admit(line, place, permits, claim.expires, claim.ttl)
  claim.stage = claim.stage + 1
  local arrival = queue(following, placeOf(claim, hold), claim.ttl)
  local placed, waits, arrived, json, at = struct.unpack(REST, claim.rest)
  claim.rest = restOf(placed, waits, arrived .. ',' .. arrival, json, string.sub(claim.rest, at))
  save(claim)
  unqueue(line, place)
  settle(following)
end

--- The claim holds from now on, as far as others can see.
local function write(line, claim, place, permits)
  beginWrites(line)
  grant(claim, line, mint(claim, line))
  admit(line, place, permits, claim.expires, claim.ttl)
  save(claim)
end

--- Grants the place of a claim in its last line, if its process hears of it. Says so.
--- A command that is refused ends the script there (a right that was taken away), and what is written stays. So the grant is
--- written first, in an order in which each beginning of it does no harm: a counter is too high, a place is counted that
--- nobody has, until its lease ends; and last the place is taken out of the queue, where `settle` knows it for a relic. Only
--- what is written is said; and if nobody hears it, taken back. That costs no further command unless nobody hears it.
local function offer(line, claim, place, permits)
  if asking[claim.id] then
    granted[claim.id] = claim
    write(line, claim, place, permits)
    unqueue(line, place)
    return true
  end
  if isUnreachable(claim) then return false end
  write(line, claim, place, permits)
  if tell(claim, claim.id .. ' ' .. text(claim.token) .. ' ' .. claim.tokens .. ' ' .. claim.expires - now) then
    unqueue(line, place)
    return true
  end
  call('ZREM', line.admitted, place)
  line.used = nil
  claim.token, claim.isStale = 0, true
  return false
end

--- The claim's process does not listen: it loses a turn, and if that happens again a second later without a word from
--- it in between, its place. Does it keep its place?
local function passOver(line, claim, permits, limit)
  local heardAt = claim.expires - claim.ttl
  if claim.missed > heardAt and now - claim.missed >= SECOND then
    leave(claim, claim.count > 1 and holdsOf(claim) or { { line.bucket, line.name, permits, limit } })
    call('DEL', claim.key)
    return false
  end
  local isFirst = claim.missed <= heardAt
  if isFirst then claim.missed = now end
  if isFirst or claim.isStale then save(claim) end
  return true
end

local function fits(line, permits, limit)
  return line.used + permits <= tonumber(limit)
end

--- Are those that were passed over kept from their turn by now?
local function blocks(passed, line)
  for _, one in ipairs(passed) do
    if not fits(line, one.permits, one.limit) then return true end
  end
  return false
end

--- Nobody listens of those who might go: the first of them has the lock for a second, which its renewal makes whole.
local function grantUnheard(line, first)
  look(line)
  if frontOf(line) ~= first.place or not fits(line, first.permits, first.limit) then return end
  local claim = first.claim
  claim.expires = math.min(claim.expires, now + SECOND)
  for at = 1, claim.stage - 1 do
    local hold = holdsOf(claim)[at]
    local entered = lineOf(hold[1], hold[2])
    call('ZADD', entered.admitted, 'XX', claim.expires .. '', placeOf(claim, hold))
    entered.used = nil
  end
  write(line, claim, first.place, first.permits)
  unqueue(line, first.place)
end

--- Admits whoever may go in this line. Those whose processes do not listen are passed over.
settle = function(line)
  local passed, isLetThrough = nil, false
  while true do
    look(line)
    if line.used >= ALL or looks == 0 or breathing then break end
    if passed and (#passed == MOST_PASSED or isLetThrough and blocks(passed, line)) then break end
    local place = frontOf(line)
    if passed then place = call('ZRANGE', line.waiting, #passed, #passed)[1] end
    if not place then break end
    local bucket, id, permits, limit = parse(place)
    if not fits(line, permits, limit) then break end
    looks = looks - 1
    local claim = read(bucket, id)
    if not waitsIn(line, claim) then
      unqueue(line, place)
    elseif claim.stage < claim.count then
      goOn(line, claim, place, permits)
      isLetThrough = true
    elseif offer(line, claim, place, permits) then
      isLetThrough = true
    elseif passOver(line, claim, permits, limit) then
      passed = passed or {}
      passed[#passed + 1] = { claim = claim, place = place, permits = permits, limit = limit }
    end
  end
  if passed and not isLetThrough then grantUnheard(line, passed[1]) end
  line.left = false
end

--- The claim that waits in front, or nil. `settle` does not look at whoever has no room: one that has died holds up nobody.
local function frontAlive(line)
  local front = frontOf(line)
  while front do
    local bucket, id = parse(front)
    local claim = read(bucket, id)
    if waitsIn(line, claim) then return claim end
    unqueue(line, front)
    settle(line)
    front = frontOf(line)
  end
end

--- Settles the lines that somebody has left.
settleAll = function()
  local at = 1
  while unsettled[at] and looks > 0 do
    local line = unsettled[at]
    if line.left then settle(line) end
    if isIdle(line) then call('ZREM', shared(line.bucket, 'i'), line.name) end
    at = at + 1
  end
end
