--[[ seats.lua — the line of one key: its places, and how claims enter and leave it. ]]
local function lineOf(bucket, name)
  local line = lines[name]
  if not line then
    line = { bucket = bucket, name = name, admitted = named(bucket, 'a', name), waiting = named(bucket, 'w', name) }
    lines[name] = line
  end
  return line
end

--- Ends what has run out among the admitted, and sums up the rest.
local function look(line)
  if line.used then return end
  local places = call('ZRANGE', line.admitted, 0, -1, 'WITHSCORES')
  line.used, line.holders, line.soonest = 0, 0, math.huge
  for at = 1, #places, 2 do
    local place, expires = parse(places[at]), tonumber(places[at + 1])
    if expires <= now then
      write('ZREM', line.admitted, places[at])
    else
      if expires > now + place.ttl then
        expires = now + place.ttl
        write('ZADD', line.admitted, expires, places[at])
      end
      line.used = line.used + place.permits
      line.holders = line.holders + 1
      line.soonest = math.min(line.soonest, expires)
    end
  end
end

local function index(bucket)
  return root .. '{' .. bucket .. '}:i'
end

--- Keys whose places ran out unseen are still in the index: now and then a few of it are looked at.
local function weed(bucket)
  for _, member in ipairs(call('ZRANDMEMBER', index(bucket), 8)) do
    local name, owner, id = string.match(member, '^(%Z+)%z(..)(%w+)$')
    local left = id and call('EXISTS', named(owner, 'c', id))
      or call('EXISTS', named(bucket, 'a', member), named(bucket, 'w', member))
    if left == 0 then write('ZREM', index(bucket), member) end
  end
end

--- Nobody holds the key or waits for it. To be asked when the line is settled.
local function isIdle(line)
  return line.holders == 0 and not line.front
end

--- The key gets a place.
local function enlist(bucket, member, ttl)
  write('ZADD', index(bucket), 0, member)
  keep(index(bucket), math.max(ttl, DAY) * 2)
end

local function admit(line, place, permits, expires, ttl)
  write('ZADD', line.admitted, expires, place)
  keep(line.admitted, ttl + SLACK)
  line.used = line.used + permits
  line.holders = line.holders + 1
  line.soonest = math.min(line.soonest, expires)
end

--- A number that no step of the clock can disorder within one line.
local function arrive(last)
  arrivals = arrivals + 1
  return math.max(micros + arrivals, (last or 0) + 1)
end

--- Puts a place at the end of those that wait; gives its arrival.
local function queue(line, place, ttl)
  if isIdle(line) then enlist(line.bucket, line.name, ttl) end
  local last = call('ZRANGE', line.waiting, -1, -1, 'WITHSCORES')[2]
  local arrival = arrive(last)
  write('ZADD', line.waiting, arrival, place)
  keep(line.waiting, ttl + SLACK)
  line.front = line.front or place
  return arrival
end

local function tidy(line)
  if isIdle(line) then write('ZREM', index(line.bucket), line.name) end
end

--- Takes a claim out of the lines it has entered; says from how many.
local function leave(claim, holds)
  local left = 0
  for at = 1, claim.stage do
    local hold = holds[at]
    local line = lineOf(hold[1], hold[2])
    local held = at < claim.stage or claim.token > 0
    left = left + write('ZREM', held and line.admitted or line.waiting, placeOf(claim, hold))
    line.used = nil
    if not line.left then unsettled[#unsettled + 1] = line end
    line.left = true
  end
  if claim.count > 1 then
    for at = 1, claim.count do
      write('ZREM', index(holds[at][1]), holds[at][2] .. '\0' .. claim.bucket .. claim.id)
    end
  end
  return left
end

--- What is left in lines of a claim that is not known (any more): it was evicted, deleted, or never placed.
local function sweep(claim, holds)
  for _, hold in ipairs(holds) do
    local line, place = lineOf(hold[1], hold[2]), placeOf(claim, hold)
    if write('ZREM', line.admitted, place) + write('ZREM', line.waiting, place) > 0 then
      line.used = nil
      unsettled[#unsettled + 1] = line
    end
  end
end
