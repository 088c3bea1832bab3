--[[ admission.lua — admits waiting claims, and passes over those whose process does not listen (unreachable waiters).

     Invariants
     - Only `settle` admits waiting claims, and each fits beside the sum of those admitted at that moment. A claim that
       leaves invalidates the sum (`leftBy`), and `look` computes it again before it is used.
     - A claim that is granted, or that goes on to its next queue, is let through: its entry here is admitted. After a claim
       was let through, `settle` grants to no unreachable waiter. An unreachable waiter that is granted is first in the
       queue and fits like any other.
     - A grant is written before it is published: see `offer` and decision 0023.
     - After `settle` no claim that fits is left at the front of the queue, except unreachable ones. ]]
local MOST_PASSED = 32
local SECOND = 1000
local unreachable = {} -- by inbox, as far as this script has found out; it cannot change while the script runs
local granted = {} -- by id: claims that this call answers for and grants after it has computed their answers

--- The caller's own process gets the push in the reply, if the reply has room for pushes (`told`).
local function hearsAnswer(claim)
  return told and claim.inbox == inbox
end

--- In a Cluster a fail-over may leave a subscription on a replica, where it receives everything and is not counted. So an
--- empty ping counts the subscribers first, and no grant is published that is not counted. Elsewhere the count comes with
--- the message itself.
local function isUnreachable(claim)
  if hearsAnswer(claim) then return false end
  local home = claim.inbox
  if unreachable[home] == nil and string.find(home, '{', 1, true) then
    unreachable[home] = redis.pcall('SPUBLISH', home, '') == 0
  end
  return unreachable[home]
end

--- Pushes a message to the claim's process and returns whether it is reachable. An error of Redis (no permission to
--- publish) does not count as unreachable. Messages are not replicated: a replica may have a left-over subscription.
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

--- After its first write a script is not refused for lack of memory. So the first write is a ZREM that changes nothing.
local function beginWrites(line)
  if not dirty then call('ZREM', line.waiting, '') end
  dirty = true
end

--- Whether the claim waits in this queue. A script that ended at a refused command may have left a stale entry.
local function waitsIn(line, claim)
  return alive(claim) and claim.token == 0 and (claim.count == 1 or holdsOf(claim)[claim.stage][2] == line.name)
end

--- Admits the claim in this queue and enters it in its next one.
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

--- Writes the grant: from now on the claim is held for all other scripts.
local function write(line, claim, place, permits)
  beginWrites(line)
  grant(claim, line, mint(claim, line))
  admit(line, place, permits, claim.expires, claim.ttl)
  save(claim)
end

--- Grants a claim in its last queue if its process is reachable, and returns whether it did.
--- A refused command (a permission was revoked) ends the script, and its earlier writes stay. So the grant is written first,
--- in an order in which every partial write is harmless: a counter is too high, or permits count as used by no claim until
--- the lease ends. Removing the waiting entry comes last, and `settle` recognizes a stale one. Only a written grant is
--- published. If no process receives it, it is undone; only that case costs further commands.
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

--- Passes over a claim whose process is unreachable. If that happens again a second or more later, without a call of the
--- process in between, the claim is removed. Returns whether the claim keeps its entry.
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

--- Whether a claim that was passed over does not fit any more, because of grants behind it.
local function blocks(passed, line)
  for _, one in ipairs(passed) do
    if not fits(line, one.permits, one.limit) then return true end
  end
  return false
end

--- All claims that fit are unreachable: grants to the first one for a second. A renewal restores the full lease.
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

--- Admits the claims of this queue that fit. Passes over unreachable waiters.
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

--- The first live waiting claim, or nil. `settle` does not read a claim that does not fit, so expired ones are removed here:
--- they must not block the queue.
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

--- Settles the queues that claims have left.
settleAll = function()
  local at = 1
  while unsettled[at] and looks > 0 do
    local line = unsettled[at]
    if line.left then settle(line) end
    if isIdle(line) then call('ZREM', shared(line.bucket, 'i'), line.name) end
    at = at + 1
  end
end
