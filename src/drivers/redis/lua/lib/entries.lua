--[[ entries.lua — reads the entries of a queue and removes claims from it. ]]
local looks = 2000
local unsettled = {}
local told -- pushes for the caller's own process, returned in the reply; nil: the reply has no room for them
local settle, settleAll -- defined by admission.lua, which not every call loads

--- Removes expired admitted entries and sums up the permits of the rest.
local function look(line)
  if line.used then return end
  empty(line)
  local places = call('ZRANGE', line.admitted, 0, -1, 'WITHSCORES')
  for at = 1, #places, 2 do
    local _, _, permits, _, ttl = parse(places[at])
    local expires = tonumber(places[at + 1])
    if expires <= now then
      call('ZREM', line.admitted, places[at])
    else
      if expires > now + ttl then
        expires = now + ttl
        call('ZADD', line.admitted, expires .. '', places[at])
      end
      line.used = line.used + permits
      line.soonest = math.min(line.soonest, expires)
    end
  end
end

--- The first waiting entry, or false.
local function frontOf(line)
  if line.front == nil then line.front = call('ZRANGE', line.waiting, '0', '0')[1] or false end
  return line.front
end

--- Whether the queue is empty. Valid only after `settle`.
local function isIdle(line)
  return line.used == 0 and not frontOf(line)
end

--- Removes a waiting entry.
local function unqueue(line, place)
  line.front = nil
  return call('ZREM', line.waiting, place)
end

--- A claim has left this queue: its sum must be computed again, and the queue settled.
local function leftBy(line)
  line.used = nil
  if not line.left then unsettled[#unsettled + 1] = line end
  line.left = true
end

--- As leftBy, after a claim with all permits: most likely no other entry is admitted, and one command checks that.
local function leftByAll(line)
  leftBy(line)
  local left = call('EXISTS', line.admitted, line.waiting, line.waiting) -- waiting entries count twice
  if left % 2 == 0 then empty(line) end
  if left < 2 then line.front = false end
end

--- Removes a claim from the queues that it has entered and returns from how many. The first write frees memory.
local function leave(claim, holds)
  local left = 0
  dirty = true
  for at = 1, claim.stage do
    local hold = holds[at]
    local line, place = lineOf(hold[1], hold[2]), placeOf(claim, hold)
    local isHeld = at < claim.stage or claim.token > 0
    local gone = isHeld and call('ZREM', line.admitted, place) or not isHeld and unqueue(line, place)
    if isHeld and tonumber(hold[3]) == ALL then leftByAll(line) else leftBy(line) end
    left = left + gone
  end
  if claim.count > 1 then
    for at = 1, claim.count do
      call('ZREM', shared(holds[at][1], 'i'), holds[at][2] .. '\0' .. claim.bucket .. claim.id)
    end
  end
  return left
end

local function alive(claim)
  return claim and not claim.ended and claim.expires > now
end
