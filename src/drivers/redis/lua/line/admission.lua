--[[ admission.lua — who is admitted, and who is passed over. ]]
local MOST_PASSED = 32
local SECOND = 1000

--- Says it to the claim's process; was it listening? An error of Redis (no right to publish) is no sign of that. Whoever
--- called hears it in the answer, where that has room for it.
--- Nobody may hear a grant that is not counted here: else it is granted to somebody else, too. So what is published is
--- kept from the replicas, where an inbox may have been left behind. In a Cluster, where a bucket has a channel of its own
--- (it has a hash tag), replicas hear all the same: there it is asked first, with nothing.
local function tell(claim, message)
  if told and claim.inbox == inbox then
    told[#told + 1] = message
    return true
  end
  if string.find(claim.inbox, '{', 1, true) then
    if redis.pcall('SPUBLISH', claim.inbox, '') == 0 then return false end
    redis.pcall('SPUBLISH', claim.inbox, message)
    return true
  end
  redis.set_repl(redis.REPL_NONE)
  local heard = redis.pcall('PUBLISH', claim.inbox, message)
  redis.set_repl(redis.REPL_ALL)
  return heard ~= 0
end

--- Admitted in this line, the claim enters its next one.
local function goOn(line, claim, place, permits)
  local holds = holdsOf(claim)
  unqueue(line, place)
  admit(line, place, permits, claim.expires, claim.ttl)
  claim.stage = claim.stage + 1
  local hold = holds[claim.stage]
  local following = lineOf(hold[1], hold[2])
  settle(following)
  local arrival = queue(following, placeOf(claim, hold), claim.ttl)
  local placed, waits, arrived, json, at = struct.unpack(REST, claim.rest)
  claim.rest = restOf(placed, waits, arrived .. ',' .. arrival, json, string.sub(claim.rest, at))
  save(claim)
  settle(following)
end

--- Grants the place of a claim in its last line, if its process hears of it. Says so.
local function offer(line, claim, place, permits)
  local token = mint(claim, line)
  if not asking[claim.id] then
    -- nothing may be said that is refused afterwards: after any write nothing is
    if not dirty then call('ZREM', line.waiting, '') end
    dirty = true
    local words = claim.id .. ' ' .. text(token) .. ' ' .. claim.tokens .. ' ' .. claim.expires - now
    if not tell(claim, words) then return false end
  end
  unqueue(line, place)
  grant(claim, line, token)
  save(claim)
  admit(line, place, permits, claim.expires, claim.ttl)
  return true
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
  if claim.missed <= heardAt then
    claim.missed = now
    save(claim)
  end
  return true
end

local function blocks(passed, line)
  for _, one in ipairs(passed) do
    if line.used + one.permits > tonumber(one.limit) then return true end
  end
  return false
end

--- Admits whoever may go in this line. Those whose processes do not listen are passed over; if nobody listens, the
--- front one is granted for a second, which its renewal makes whole.
settle = function(line)
  local passed, granted = nil, false
  while true do
    look(line)
    if line.used >= ALL or looks == 0 or breathing then break end
    local place = frontOf(line)
    if passed then place = call('ZRANGE', line.waiting, #passed, #passed)[1] end
    if not place then break end
    local bucket, id, permits, limit = parse(place)
    if line.used + permits > tonumber(limit) then break end
    looks = looks - 1
    local claim = read(bucket, id)
    if not alive(claim) then
      unqueue(line, place)
    elseif claim.stage < claim.count then
      goOn(line, claim, place, permits)
    elseif offer(line, claim, place, permits) then
      granted = true
    elseif passOver(line, claim, permits, limit) then
      passed = passed or {}
      passed[#passed + 1] = { claim = claim, place = place, permits = permits, limit = limit }
    end
    if passed and (#passed == MOST_PASSED or (granted and blocks(passed, line))) then break end
  end
  if passed and not granted then
    local first = passed[1]
    first.claim.expires = math.min(first.claim.expires, now + SECOND)
    asking[first.claim.id] = true
    offer(line, first.claim, first.place, first.permits)
  end
end

--- Settles the lines that somebody has left.
settleAll = function()
  local at = 1
  while unsettled[at] and looks > 0 do
    local line = unsettled[at]
    line.left = false
    settle(line)
    if isIdle(line) then call('ZREM', shared(line.bucket, 'i'), line.name) end
    at = at + 1
  end
end
