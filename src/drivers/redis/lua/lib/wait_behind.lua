--[[ wait_behind.lua — claims enter the queue behind an exclusive holder, or leave it. A part of contended.lua.
     needs    prelude.lua, free_key.lua, records.lua, push.lua, contended.lua, turn.lua
     defines  leaveQueue, waitBehind

     Invariant: a waiting entry is added before the record of the holder says that claims wait. ]]
--- constants prelude.lua
--- constants records.lua
--- constants free_key.lua

--- The id, the end of the lease, and the wants of a live exclusive holder; nil: another case.
local function readHolder(record)
  local _, expires = unpackHead(HEAD, record)
  local id, ttl, wants = match(record, EXCLUSIVE_HOLDER, BODY_AT)
  if id and expires > nowMs and expires <= nowMs + ttl then return id, expires, wants end
end

--- Releases waiting claims. The key has an exclusive holder, so their release admits no other claim. Returns how many
--- of these items were executed.
local function leaveQueue(key, record, items)
  local holderId = readHolder(record)
  if not holderId then return 0 end
  local fields, isKnown = {}, { [holderId] = true }
  for _, item in ipairs(items) do
    if isKnown[item.id] then break end
    isKnown[item.id] = true
    fields[#fields + 1] = CLAIM_FIELD .. item.id
  end
  local claims, entries = try('HMGET', key.hash, unpack(fields)), {}
  for position = 1, #fields do
    local waiter = claims[position]
    if not readWaiter(waiter) or not match(waiter, ONE_KEY_INBOX, BODY_AT) then break end
    local id, ttl, permits, limit, _, _, _, wants = match(waiter, BODY, BODY_AT)
    entries[position] = joinEntry(items[1].bucket, id, permits, limit, ttl, wants == WANTS_RECALL)
  end
  local count = #entries
  if count > 1 then -- up to the first one that was evicted: the general path answers for that
    local scores = try('ZMSCORE', key.waiting, unpack(entries))
    for position = count, 1, -1 do
      if scores.err or not scores[position] then count = position - 1 end
    end
  end
  if count == 0 or try('ZREM', key.waiting, unpack(entries, 1, count)) ~= count then return 0 end
  if type(try('HDEL', key.hash, unpack(fields, 1, count))) == 'table' then return 0 end
  hasWritten = true
  if try('EXISTS', key.waiting) == 0 then try('HSET', key.hash, key.field, LONE .. sub(record, STATE_AT)) end
  for position = 1, count do answers[items[position].index - 3] = '1' end
  return count
end

--- Writes claims that wait: `fields` and `entries` are their records and their entries. Returns whether it did, and
--- whether they are the first that wait.
local function writeWaiting(bucket, key, record, lastIssued, fields, entries)
  local arrival, members = math.max(nowMicros, (lastIssued or 0) + 1, (issued[bucket] or 0) + 1) - 1, {}
  for position, entry in ipairs(entries) do
    arrival = arrival + 1
    members[2 * position - 1], members[2 * position] = formatInt(arrival), entry
  end
  local remaining = try('PTTL', key.waiting)
  if type(remaining) == 'table' or type(try('ZADD', key.waiting, unpack(members))) == 'table' then return false end
  local isKept = remaining >= DAY or type(try('PEXPIRE', key.waiting, 2 * DAY)) ~= 'table'
  local isFirst = match(record, IS_LONE) or remaining == -2 -- those who waited were evicted
  fields[#fields + 1], fields[#fields + 2] = LAST_FIELD, formatInt(arrival)
  if isFirst then fields[#fields + 1], fields[#fields + 2] = key.field, AWAITED .. sub(record, STATE_AT) end
  if not isKept or type(try('HSET', key.hash, unpack(fields))) == 'table' then
    try('ZREM', key.waiting, unpack(entries))
    return false
  end
  hasWritten, issued[bucket] = true, arrival
  return true, isFirst
end

--- Restates the admission rule: behind an exclusive holder nothing fits. Puts new claims in the queue; refuses those
--- that do not wait. Returns how many of these items were executed.
local function waitBehind(key, items)
  local bucket, read = items[1].bucket, #items == 1 and found[items[1].index]
  if not read then
    local fields = { key.field, LAST_FIELD, EXTENDED_FIELD }
    for _, item in ipairs(items) do fields[#fields + 1] = CLAIM_FIELD .. item.id end
    read = try('HMGET', key.hash, unpack(fields))
  end
  local record, extendedAt = read[OF_KEY], read[EXTENDED_AT]
  if not record or not match(record, IS_ORDINARY_THIN) then return 0 end
  local holderId, holderExpires, holderWants = readHolder(record)
  if not holderId then return 0 end

  local isKnown, count = { [holderId] = true }, 0 -- not the holder itself, which is repeated
  local fields, entries, waiting, isFirst = {}, {}, {}, false
  for position, item in ipairs(items) do
    local id = item.id
    local body, ttl, permits, limit, floor, waits, wants = match(ARGV[item.index], NEW_WAITER)
    if isKnown[id] or read[OF_CLAIM - 1 + position] or #ttl > SHORT_TTL_DIGITS then break end
    -- Restates the floor rule: the general path decides about a floor that is further ahead
    if floor - nowMicros > DAY * 1000 then break end
    -- the time to live of the hash was set a short time ago
    if waits ~= DOES_NOT_WAIT and (not extendedAt or now - extendedAt >= EXTENSION_INTERVAL) then break end
    isKnown[id], count = true, position
    if waits ~= DOES_NOT_WAIT then
      waiting[#waiting + 1] = { item = item, ttl = ttl }
      entries[#waiting] = joinEntry(bucket, id, permits, limit, ttl, wants == WANTS_RECALL)
      fields[2 * #waiting - 1] = CLAIM_FIELD .. id
      fields[2 * #waiting] = packHead(HEAD, ORDINARY_OWN, nowMs + ttl, 0, nowMs, 0, 1) .. body .. ONE_KEY .. inbox
    end
  end
  if waiting[1] then
    local areWritten
    areWritten, isFirst = writeWaiting(bucket, key, record, read[LAST_ISSUED], fields, entries)
    if not areWritten then return 0 end
  end
  local isRecalled = isFirst and holderWants == WANTS_RECALL
  if isRecalled then push(match(record, ONE_KEY_INBOX, BODY_AT), joinRecall(holderId, key.bucketAndKey)) end
  for position = 1, count do answers[items[position].index - 3] = 'n' end
  for position, claim in ipairs(waiting) do
    local recheck = math.min(tonumber(claim.ttl), holderExpires - nowMs)
    if position == 1 and isRecalled then recheck = math.min(recheck, FRONT_RECHECK_MS) end
    entered[claim.item.id] = claim.item.index
    answers[claim.item.index - 3] = 'w ' .. claim.ttl .. ' ' .. math.max(recheck, 1) .. ' ' .. nowMsText
  end
  return count
end
