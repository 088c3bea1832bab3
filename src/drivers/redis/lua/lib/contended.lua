--[[ contended.lua — the contended path of turn.lua: an exclusive lock is handed to the next claim in its queue, and a claim enters or leaves
     the queue behind an exclusive holder, with few commands and without the functions of the general path.
     needs    prelude.lua, grace.lua; of turn.lua: answers, deferred, found, issued, isWritten, pushes, entered
     defines  executeContended

     Invariants
     - It executes an item only if the general path would give the same result: the key has one exclusive holder, in thin form, alive
       and in its ordinary state. For a release, the first waiting claim must be alive and exclusive, and have this key only, so that no
       other claim fits beside it. All other items stay deferred.
     - Items are executed in their order: once one stays deferred, all that follow do, too. Claims for one key that follow each other enter
       its queue together, and releases of waiting claims leave it together: nothing between them could tell the difference.
     - The order of writes is that of the general path. A grant is written, then published, then its waiting entry goes; if no process
       received it, it is undone, and the release stays deferred. A waiting entry is added before the record says that claims wait.
     - The successors of a granted claim wait directly behind it, in this order. Its token range has a token for each, not below its floor. ]]
local MAX_SUCCESSORS = 63
local function executeContended()
  -- by id: the claims of these items. A release neither grants to them nor recalls for them: they are released too, or need no push
  local mentioned = {}

  --- Pushes a message and returns whether a process receives it. See `push` in admission.lua.
  local function pushTo(receiver, message)
    local reply
    if receiver == inbox then
      pushes[#pushes + 1] = '\n' .. message
    elseif string.find(receiver, '{', 1, true) then
      reply = try('SPUBLISH', receiver, message)
    else
      redis.set_repl(redis.REPL_NONE)
      reply = try('PUBLISH', receiver, message)
      redis.set_repl(redis.REPL_ALL)
    end
    return reply ~= 0
  end

  --- In a Cluster the subscribers are counted before the grant is written, elsewhere with the message.
  local function isUnreachable(receiver)
    return receiver ~= inbox and string.find(receiver, '{', 1, true) and try('SPUBLISH', receiver, '') == 0
  end

  --- The ids of the claims that wait behind the first one, as far as its process may hand the lock on to them itself: they are its own, are
  --- exclusive, ask for successors too, and have the same ttl. `second`: the entry of the first of them.
  local function findSuccessors(hash, waitingKey, bucket, second, ttl, receiver, token)
    local ids, own = {}, '\n\n\n' .. receiver
    local pattern = '^' .. bucket .. '(%w+):1073741824:1073741824:' .. ttl .. '$'
    local body = '^%w+ ' .. ttl .. ' 1073741824 1073741824 %d+ (%d+) 12\n'
    --- Appends those of these entries, and returns whether all of them are successors.
    local function append(entries)
      local fields = {}
      for _, entry in ipairs(entries) do
        local id = match(entry, pattern)
        if not id then break end
        fields[#fields + 1] = 'c:' .. id
      end
      local records = #fields > 0 and try('HMGET', hash, unpack(fields)) or {}
      for position, field in ipairs(fields) do
        local record = records[position]
        if not record or sub(record, 1, 3) ~= 'C0o' or sub(record, -#own) ~= own then return false end
        local _, expires, granted = unpackHead(HEAD, record)
        local floor = match(record, body, 37)
        if granted > 0 or expires <= nowMs or not floor or tonumber(floor) > token + #ids + 1 then return false end
        ids[#ids + 1] = sub(field, 3)
      end
      return #fields == #entries
    end
    if append({ second }) then
      local others = try('ZRANGE', waitingKey, 2, MAX_SUCCESSORS)
      if not others.err then append(others) end
    end
    return ids
  end

  --- A release: grants to the first claim that waits. Returns the answer; nil: it stays deferred.
  local function handOff(prefix, record, bucket, key, id)
    local hash, field, waitingKey = prefix .. 'h', 'k:' .. key, prefix .. 'w:' .. key
    local entries = try('ZRANGE', waitingKey, 0, 1)
    local waiterId = match(entries[1] or '', '^' .. bucket .. '(%w+):1073741824:')
    if not waiterId or mentioned[waiterId] or mentioned[match(entries[2] or '', '^..(%w+)')] then return nil end
    local read = try('HMGET', hash, 'c:' .. waiterId, 'n')
    local waiter = read[1]
    if not waiter or sub(waiter, 1, 3) ~= 'C0o' then return nil end
    local _, expires, token, placedAt, missedAt = unpackHead(HEAD, waiter)
    local ttl, tokens, floor, recall = match(waiter, '^%w+ (%d+) %d+ %d+ (%d+) (%d+) %d(%d)\n', 37)
    local receiver = match(waiter, '\n\n\n([^\n]*)$', 60) -- neither several keys nor arrivals in their queues
    if token > 0 or expires <= nowMs or expires > nowMs + ttl or not receiver then return nil end
    token = math.max(nowMicros, floor, (read[2] or 0) + 1, tokenFloor + 1)
    local body, successors = sub(waiter, 37), ''
    if recall == '2' and entries[2] then
      local ids = findSuccessors(hash, waitingKey, bucket, entries[2], ttl, receiver, token)
      if #ids >= tonumber(tokens) then
        tokens = #ids + 1 .. ''
        body = string.gsub(body, '^(%w+ %d+ %d+ %d+) %d+', '%1 ' .. tokens, 1)
      end
      if ids[1] then successors = ',' .. table.concat(ids, ',') end
    end
    local highest = token + tokens - 1
    if highest > tokenCeiling - MIN_LEAD or isUnreachable(receiver) then return nil end

    local isLast, tokenText = not entries[2], formatInt(token)
    local granted = packHead(HEAD, isLast and 'T0o' or 'T1o', expires, token, placedAt, missedAt, 1) .. body
    local last = tokens == '1' and tokenText or formatInt(highest)
    local reply = try('HSET', hash, field, granted, 'n', last, 'c:' .. waiterId, 'x 0 0 granted')
    if type(reply) == 'table' then return nil end
    isWritten = true
    local lease, isRecalled = tokenText .. ' ' .. tokens .. ' ' .. expires - nowMs, recall == '1' and not isLast
    if not pushTo(receiver, waiterId .. ' ' .. lease .. (isRecalled and ' r' or ' h') .. successors .. ' ' .. bucket .. key) then
      try('HSET', hash, field, record, 'c:' .. waiterId, waiter, 'n', read[2] or last)
      return nil
    end
    try('ZREM', waitingKey, entries[1])
    try('HDEL', hash, 'c:' .. waiterId)
    issued[bucket] = highest
    return '1'
  end

  --- Releases waiting claims. The key has an exclusive holder, so their release admits no other claim. Returns how many of these items
  --- were executed.
  local function leaveQueue(prefix, record, holderExpires, items)
    local holderId, holderTtl = match(record, '^(%w+) (%d+) 1073741824 ', 37)
    if not holderId or holderExpires > nowMs + holderTtl then return 0 end
    local hash, waitingKey = prefix .. 'h', prefix .. 'w:' .. items[1].key
    local fields, isKnown = {}, { [holderId] = true }
    for _, item in ipairs(items) do
      if isKnown[item.id] then break end
      isKnown[item.id] = true
      fields[#fields + 1] = 'c:' .. item.id
    end
    local claims = try('HMGET', hash, unpack(fields))
    local entries = {}
    for position = 1, #fields do
      local claim = not claims.err and claims[position]
      if not claim or sub(claim, 1, 3) ~= 'C0o' then break end
      local _, expires, token = unpackHead(HEAD, claim)
      local id, ttl, permits, limit, recall = match(claim, '^(%w+) (%d+) (%d+) (%d+) %d+ %d+ %d(%d)\n', 37)
      if not id or token > 0 or expires <= nowMs or not match(claim, '\n\n\n[^\n]*$', 60) then break end
      entries[position] = items[1].bucket .. id .. ':' .. permits .. ':' .. limit .. ':' .. ttl .. (recall == '1' and ':r' or '')
    end
    local count = #entries
    if count > 1 then -- up to the first one that was evicted: the general path answers for that
      local scores = try('ZMSCORE', waitingKey, unpack(entries))
      for position = 1, count do
        if scores.err or not scores[position] then
          count = position - 1
          break
        end
      end
    end
    if count == 0 or try('ZREM', waitingKey, unpack(entries, 1, count)) ~= count then return 0 end
    if type(try('HDEL', hash, unpack(fields, 1, count))) == 'table' then return 0 end
    isWritten = true
    if try('EXISTS', waitingKey) == 0 then try('HSET', hash, 'k:' .. items[1].key, 'T0' .. sub(record, 3)) end
    for position = 1, count do answers[items[position].index - 3] = '1' end
    return count
  end

  --- Releases the holder or waiting claims. Returns how many of these items were executed.
  local function release(items)
    local first = items[1]
    local prefix = namePrefix .. '{' .. first.bucket .. '}:'
    local record = found[first.index] and found[first.index][1]
    if not found[first.index] then record = try('HGET', prefix .. 'h', 'k:' .. first.key) end
    if type(record) ~= 'string' or sub(record, 1, 3) ~= 'T1o' then return 0 end
    local _, holderExpires = unpackHead(HEAD, record)
    if holderExpires <= nowMs then return 0 end
    if sub(record, 37, 37 + #first.id) ~= first.id .. ' ' then return leaveQueue(prefix, record, holderExpires, items) end
    local answer = handOff(prefix, record, first.bucket, first.key, first.id)
    if not answer then return 0 end
    answers[first.index - 3] = answer
    return 1
  end

  --- Puts new claims in the queue; refuses those that do not wait. Returns how many of these items were executed.
  local function enterQueue(items)
    local bucket, key = items[1].bucket, items[1].key
    local prefix = namePrefix .. '{' .. bucket .. '}:'
    local hash, field, waitingKey = prefix .. 'h', 'k:' .. key, prefix .. 'w:' .. key
    local read = #items == 1 and found[items[1].index]
    if read then
      read = { read[1], read[3], read[4], read[2] }
    else
      local fields = { field, 'n', 'e' }
      for position, item in ipairs(items) do fields[3 + position] = 'c:' .. item.id end
      read = try('HMGET', hash, unpack(fields))
    end
    local record = read[1]
    if not record or sub(record, 1, 1) ~= 'T' or sub(record, 3, 3) ~= 'o' then return 0 end
    local _, expires = unpackHead(HEAD, record)
    local holderId, holderTtl, holderRecall = match(record, '^(%w+) (%d+) 1073741824 %d+ %d+ %d+ %d(%d)\n', 37)
    if not holderId or expires <= nowMs or expires > nowMs + holderTtl then return 0 end

    -- not the holder itself, which is repeated
    local isKnown, made, count = { [holderId] = true }, {}, 0
    local arrival = math.max(nowMicros, (read[2] or 0) + 1, (issued[bucket] or 0) + 1) - 1
    local members, entries, fields = {}, {}, {}
    for position, item in ipairs(items) do
      local body = sub(ARGV[item.index], 5 + #key)
      local ttl, permits, limit, floor, waits, recall = match(body, '^%w+ (%d+) (%d+) (%d+) %d+ (%d+) (%d)(%d)\n')
      if isKnown[item.id] or read[3 + position] or #ttl >= 8 or floor - nowMicros > DAY * 1000 then break end
      -- the time to live of the hash was set in the last hour
      if waits ~= '0' and (not read[3] or now - read[3] >= 3600) then break end
      isKnown[item.id], count = true, position
      if waits ~= '0' then
        arrival = arrival + 1
        local entry = bucket .. item.id .. ':' .. permits .. ':' .. limit .. ':' .. ttl .. (recall == '1' and ':r' or '')
        made[#made + 1] = { item = item, ttl = ttl, recheck = math.min(tonumber(ttl), expires - nowMs) }
        entries[#made], members[2 * #made - 1], members[2 * #made] = entry, formatInt(arrival), entry
        fields[2 * #made - 1] = 'c:' .. item.id
        fields[2 * #made] = packHead(HEAD, 'C0o', nowMs + ttl, 0, nowMs, 0, 1) .. body .. '\n\n\n' .. inbox
      end
    end

    if made[1] then
      local remaining = try('PTTL', waitingKey)
      if type(remaining) == 'table' or type(try('ZADD', waitingKey, unpack(members))) == 'table' then return 0 end
      local isKept = remaining >= DAY or type(try('PEXPIRE', waitingKey, 2 * DAY)) ~= 'table'
      local isFirst = sub(record, 2, 2) == '0' or remaining == -2 -- those who waited were evicted
      fields[#fields + 1], fields[#fields + 2] = 'n', formatInt(arrival)
      if isFirst then fields[#fields + 1], fields[#fields + 2] = field, 'T1' .. sub(record, 3) end
      if not isKept or type(try('HSET', hash, unpack(fields))) == 'table' then
        try('ZREM', waitingKey, unpack(entries))
        return 0
      end
      isWritten, issued[bucket] = true, arrival
      if isFirst and holderRecall == '1' then
        pushTo(match(record, '\n([^\n]*)$'), holderId .. ' recalled ' .. bucket .. key)
        made[1].recheck = math.min(made[1].recheck, 200) -- FRONT_RECHECK_MS of renewal.lua
      end
    end
    for position = 1, count do answers[items[position].index - 3] = 'n' end
    for _, claim in ipairs(made) do
      entered[claim.item.id] = claim.item.index
      answers[claim.item.index - 3] = 'w ' .. claim.ttl .. ' ' .. math.max(claim.recheck, 1) .. ' ' .. nowMsText
    end
    return count
  end

  --- The deferred items from this position on that follow each other and are of the same kind and key.
  local function alikeFrom(position)
    local first, items = deferred[position], {}
    for index = position, #deferred do
      local item = deferred[index]
      if item.kind ~= first.kind or item.key ~= first.key or item.bucket ~= first.bucket then break end
      items[#items + 1] = item
    end
    return items
  end

  for _, item in ipairs(deferred) do
    mentioned[item.id or match(ARGV[item.index], '\n(%w+)')] = true
  end
  local position = 1
  while deferred[position] do
    local kind, count = deferred[position].kind, 0
    if kind == 'R' then
      count = release(alikeFrom(position))
    elseif kind == 'C' then
      count = enterQueue(alikeFrom(position))
    end
    if count == 0 then break end
    for index = position, position + count - 1 do found[deferred[index].index] = nil end
    position = position + count
  end
  -- those that follow, too: in their order, as the general path grants and publishes
  local left = nil
  for index = position, #deferred do
    left = left or {}
    left[#left + 1] = deferred[index]
  end
  deferred = left
end
