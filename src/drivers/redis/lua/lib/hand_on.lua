--[[ hand_on.lua — the release of an exclusive lock that the next claim in its queue gets. A part of contended.lua.
     needs    prelude.lua, grace.lua, free_key.lua, records.lua, push.lua, contended.lua
     defines  handOn

     Invariants
     - A grant is written, then published, then its waiting entry goes. If no process received it, it is undone, but for
       its tokens.
     - The successors of a granted claim wait directly behind it, in this order. Its token range has a token for each,
       not below its floor. ]]
--- constants prelude.lua
--- constants records.lua
local MAX_SUCCESSORS <const> = 63

--- The ids of the claims that wait behind the first one, as far as its process may hand the lock on to them itself:
--- they are its own, are exclusive, ask for successors too, and have the same ttl. `second`: the entry of the first of
--- them.
local function findSuccessors(bucket, key, second, claimTtl, receiver, token)
  local ids, ending = {}, ONE_KEY .. receiver
  --- Appends those of these entries, and returns whether all of them are successors.
  local function append(entries)
    local fields = {}
    for _, entry in ipairs(entries) do
      local owner, id, ttl = match(entry, SUCCESSOR_ENTRY)
      if owner ~= bucket or ttl ~= claimTtl then break end
      fields[#fields + 1] = CLAIM_FIELD .. id
    end
    local records = fields[1] and try('HMGET', key.hash, unpack(fields)) or {}
    for position = 1, #fields do
      local record = records[position]
      if not readWaiter(record) or sub(record, -#ending) ~= ending then return false end
      local id, ttl, floor = match(record, SUCCESSOR, BODY_AT)
      if ttl ~= claimTtl or tonumber(floor) > token + #ids + 1 then return false end
      ids[#ids + 1] = id
    end
    return #fields == #entries
  end
  if append({ second }) then
    local others = try('ZRANGE', key.waiting, 2, MAX_SUCCESSORS)
    if not others.err then append(others) end
  end
  return ids
end

--- The holder with this record releases: grants to the first claim that waits. Returns whether it did.
local function handOn(bucket, key, record)
  local entries = try('ZRANGE', key.waiting, 0, 1)
  -- Restates the admission rule: when the exclusive holder has gone, an exclusive entry at the front fits
  local owner, id = match(entries[1] or '', EXCLUSIVE_ENTRY)
  local _, secondId = match(entries[2] or '', ENTRY_OWNER)
  if owner ~= bucket or mentioned[id] or mentioned[secondId] then return false end
  local claimField = CLAIM_FIELD .. id
  local read = try('HMGET', key.hash, claimField, LAST_FIELD)
  local waiter = read[1]
  local expires, createdAt, missedAt = readWaiter(waiter)
  if not expires then return false end
  local _, ttl, _, _, tokens, floor, _, wants = match(waiter, BODY, BODY_AT)
  local receiver = match(waiter, ONE_KEY_INBOX, BODY_AT)
  if expires > nowMs + ttl or not receiver then return false end
  -- Restates the token rule
  local token = math.max(nowMicros, floor, (read[2] or 0) + 1, lastBeforeLoss + 1)
  local body, successors = sub(waiter, BODY_AT), ''
  if wants == WANTS_SUCCESSORS and entries[2] then
    local ids = findSuccessors(bucket, key, entries[2], ttl, receiver, token)
    if #ids >= tonumber(tokens) then
      tokens = #ids + 1 .. ''
      body = string.gsub(body, UP_TO_TOKENS, '%1 ' .. tokens, 1)
    end
    if ids[1] then successors = ',' .. table.concat(ids, ',') end
  end
  local highest = token + tokens - 1
  if highest > tokenCeiling - MIN_LEAD or isUnreachable(receiver) then return false end

  local form, tokenText = entries[2] and ORDINARY_AWAITED or ORDINARY_LONE, formatInt(token)
  local granted = packHead(HEAD, form, expires, token, createdAt, missedAt, 1) .. body
  local last = tokens == '1' and tokenText or formatInt(highest)
  local reply = try('HSET', key.hash, key.field, granted, LAST_FIELD, last, claimField, GRANTED_TOMBSTONE)
  if type(reply) == 'table' then return false end
  hasWritten, issued[bucket] = true, highest
  local state = wants == WANTS_RECALL and entries[2] and RECALLED or HELD
  if not push(receiver, joinGrant(id, tokenText, tokens, expires - nowMs, state .. successors, key.bucketAndKey)) then
    try('HSET', key.hash, key.field, record, claimField, waiter)
    return false
  end
  try('ZREM', key.waiting, entries[1])
  try('HDEL', key.hash, claimField)
  return true
end
