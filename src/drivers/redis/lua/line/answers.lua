--[[ answers.lua — where a claim stands, and the renewal of its lease. ]]
--- When a waiting claim should ask again: when a lease ahead of it may end.
local function recheckOf(claim, line)
  local at = math.min(now + claim.ttl, line.soonest)
  if breathing then at = math.min(at, opensAt) end
  if looks == 0 then return 50 end
  if line.front and parse(line.front).id ~= claim.id then
    local front = parse(line.front)
    line.frontExpires = line.frontExpires or call('HGET', named(front.bucket, 'c', front.id), 'e') or now
    at = math.min(at, tonumber(line.frontExpires))
  end
  return math.max(at - now, 1)
end

local function answer(claim, line)
  local left = text(claim.expires - now)
  local clocks = breathing and text(now) .. ' ' .. text(opensAt) or text(now)
  if claim.token > 0 then
    return 'h ' .. text(claim.token) .. ' ' .. text(claim.tokens) .. ' ' .. left .. ' ' .. clocks
  end
  return 'w ' .. left .. ' ' .. text(recheckOf(claim, line)) .. ' ' .. clocks
end

--- What holders may place anew now.
local function forgotten()
  return 'b ' .. text(opensAt)
end

local function none(how)
  return how and 'n ' .. how or 'n'
end

--- Restarts the lease, unless more than three quarters of it are left (and it was not found away since).
local function extend(claim, holds)
  local heardAt = claim.expires - claim.ttl
  if now - heardAt < 0.25 * claim.ttl and not claim.stepped and claim.missed <= heardAt then return end
  claim.expires = now + claim.ttl
  write('PEXPIRE', claim.key, claim.ttl * 2 + SLACK)
  write('HSET', claim.key, 'e', claim.expires, 'c', inbox)
  for at = 1, claim.stage do
    local line = lineOf(holds[at][1], holds[at][2])
    if at < claim.stage or claim.token > 0 then
      write('ZADD', line.admitted, 'XX', claim.expires, placeOf(claim, holds[at]))
      keep(line.admitted, claim.ttl + SLACK)
      line.used = nil
    else
      keep(line.waiting, claim.ttl + SLACK)
    end
  end
end

--- Does it still stand in the lines it has entered? They may have been evicted or deleted.
local function stands(claim, holds)
  for at = 1, claim.stage do
    local line = lineOf(holds[at][1], holds[at][2])
    local key = (at < claim.stage or claim.token > 0) and line.admitted or line.waiting
    if not call('ZSCORE', key, placeOf(claim, holds[at])) then return false end
  end
  return true
end

--- A known claim asks: its lease goes on, its turn may have come.
local function renew(claim, holds)
  if claim.ended then return none(claim.ended) end
  if claim.revoked then return none(claim.revoked) end
  if claim.expires <= now then return none('expired') end
  if not stands(claim, holds) then
    leave(claim, holds)
    write('DEL', claim.key)
    return none()
  end
  extend(claim, holds)
  local hold = holds[claim.stage]
  local line = lineOf(hold[1], hold[2])
  if claim.token == 0 then
    settle(line)
    local after = read(claim.bucket, claim.id)
    if not alive(after) then return none() end
    claim = after
    if claim.token == 0 then
      hold = holds[claim.stage]
      line = lineOf(hold[1], hold[2])
      look(line)
    end
  end
  return answer(claim, line)
end
