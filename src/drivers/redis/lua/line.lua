--[[ line.lua — the lines of keys: who is admitted, who waits, who is granted. Every script that changes a line
     includes it. It restates core/line.ts (a place is admitted if it fits behind those admitted before it) and
     core/mint.ts (token = max(last + 1, floor, clock)); the oracle of the conformance suite holds them together.

     ARGV  1 root of our names ("hf:1:"), 2 inbox of the caller
     Names, `b` being the bucket of a key (two hex digits, the hash tag that spreads keys over 256 slots):
       <root>{b}:a:<key>  sorted set: admitted places by the end of their lease (ms)
       <root>{b}:w:<key>  sorted set: waiting places by arrival (microseconds)
       <root>{b}:c:<id>   hash: one claim, in the bucket of its first key
       <root>{b}:n        the highest token granted in the bucket; kept for two days past its last grant
       <root>{b}:i        sorted set by name: keys with places, and key .. "\0" .. bucket .. id of claims over several
     A place is "<b><id>:<permits>:<limit>:<ttl>", so a line can be judged without reading its claims.
     A claim: e end of lease, t ttl, k token (0: waiting), n tokens, f floor, c inbox, s lines entered, z lines wanted,
       h holds (only if z > 1), aN arrival in its Nth line, p placed at, l label, q waits, r revoked, d detached,
       m not heard at, x ended: only how it ended is kept.

     Invariants
     - TIME is read once a script; no client's clock counts, and every script's writes bear that one time.
     - What can be refused is refused before the first write: Redis does not roll back. After one write nothing is
       refused any more (neither for want of memory), so where a verb must succeed its first write is one that frees.
     - A claim enters a line only when it is admitted in that of its key before, so lines are settled upwards only.
     - Loops end: a script looks at no more than `looks` waiting places.
     - A key of ours always has a time to live. ]]
local call = redis.call
local root, inbox = ARGV[1], ARGV[2]
local time = call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)

local DAY = 86400000
local SLACK = 1000 -- lines and claims outlive the leases in them: the leases decide, not Redis's own expiry
local MOST_PASSED = 32
local SECOND = 1000
local looks = 2000
local dirty = false
local arrivals = 0
local asking = {} -- ids that this very call answers for: they need no push
local lines = {}
local unsettled = {}

local function text(number)
  return string.format('%.0f', number)
end

local function named(bucket, kind, name)
  return root .. '{' .. bucket .. '}:' .. kind .. ':' .. name
end

local function write(...)
  dirty = true
  return call(...)
end

local function keep(key, ms)
  if call('PTTL', key) < ms then write('PEXPIRE', key, ms) end
end

--- Claims

--- What is known of a claim, or nil. A lease that a step back of the clock made longer than its ttl is cut to it.
local function read(bucket, id)
  local key = named(bucket, 'c', id)
  local f = call('HMGET', key, 'e', 't', 'k', 'n', 'f', 'c', 's', 'z', 'r', 'd', 'm', 'x')
  if f[12] then return { key = key, id = id, ended = f[12] } end
  if not f[1] then return nil end
  local claim = {
    key = key, bucket = bucket, id = id, expires = tonumber(f[1]), ttl = tonumber(f[2]), token = tonumber(f[3]),
    tokens = tonumber(f[4]), floor = tonumber(f[5]), inbox = f[6], stage = tonumber(f[7]), count = tonumber(f[8]),
    revoked = f[9], detached = f[10], missed = tonumber(f[11] or 0),
  }
  claim.stepped = claim.expires > now + claim.ttl
  if claim.stepped then claim.expires = now + claim.ttl end
  return claim
end

local function alive(claim)
  return claim and not claim.ended and claim.expires > now
end

--- Holds are { bucket, key, permits, limit }, all text.
local function holdsOf(claim)
  claim.holds = claim.holds or cjson.decode(call('HGET', claim.key, 'h'))
  return claim.holds
end

local function placeOf(claim, hold)
  return claim.bucket .. claim.id .. ':' .. hold[3] .. ':' .. hold[4] .. ':' .. text(claim.ttl)
end

local function parse(place)
  local bucket, id, permits, limit, ttl = string.match(place, '^(..)(%w+):(%d+):(%d+):(%d+)$')
  return { bucket = bucket, id = id, permits = tonumber(permits), limit = tonumber(limit), ttl = tonumber(ttl),
    hold = { false, false, permits, limit } }
end

--- Only how a claim ended is remembered, for as long as a late call of it may come.
local function bury(key, how, ttl)
  write('DEL', key)
  write('HSET', key, 'x', how)
  write('PEXPIRE', key, ttl)
end

--- Lines

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

--- Tokens

local function counter(bucket)
  return root .. '{' .. bucket .. '}:n'
end

local function bucketsOf(claim, line)
  if claim.count == 1 then return { line.bucket } end
  local buckets = {}
  for at, hold in ipairs(holdsOf(claim)) do buckets[at] = hold[1] end
  return buckets
end

--- The first token that may be granted to a claim now, its last line being this one.
local function mint(claim, line)
  local token = math.max(micros, claim.floor)
  for _, bucket in ipairs(bucketsOf(claim, line)) do
    token = math.max(token, (call('GET', counter(bucket)) or 0) + 1)
  end
  return token
end

--- The claim's run of tokens is spent; its record is the caller's affair.
local function grant(claim, line)
  claim.token = claim.token > 0 and claim.token or mint(claim, line)
  for _, bucket in ipairs(bucketsOf(claim, line)) do
    write('SET', counter(bucket), text(claim.token + claim.tokens - 1), 'PX', 2 * DAY)
  end
end

--- Says it to the claim's process; was it listening? An error of Redis (no right to publish) is no sign of that.
local function tell(claim, message)
  local heard = redis.pcall('PUBLISH', claim.inbox, message)
  return type(heard) ~= 'number' or heard > 0
end

--- Admission

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
    if not place or looks == 0 then break end
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

--- Answers

--- When a waiting claim should ask again: when a lease ahead of it may end.
local function recheckOf(claim, line)
  local at = math.min(now + claim.ttl, line.soonest)
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
  if claim.token > 0 then
    return 'h ' .. text(claim.token) .. ' ' .. text(claim.tokens) .. ' ' .. left .. ' ' .. text(now)
  end
  return 'w ' .. left .. ' ' .. text(recheckOf(claim, line)) .. ' ' .. text(now)
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

--- Arguments: id, ttl, count, then bucket, key, permits, limit for each hold.
local cursor = 2
local function take()
  cursor = cursor + 1
  return ARGV[cursor]
end

local function takeClaim()
  local claim = { id = take(), ttl = tonumber(take()), count = tonumber(take()) }
  local holds = {}
  for at = 1, claim.count do holds[at] = { take(), take(), take(), take() } end
  claim.bucket = holds[1][1]
  return claim, holds
end
