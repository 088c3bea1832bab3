--[[ contended.lua — the contended path of turn.lua: an exclusive lock is handed to the next claim in its queue, and a claim enters or leaves
     the queue behind an exclusive holder, with few commands and without the functions of the general path.
     needs    prelude.lua, grace.lua; of turn.lua: answers, deferred, found, issued, isWritten, pushes, entered
     defines  executeContended

     Invariants
     - It executes an item only if the general path would give the same result: the key has one exclusive holder, in thin form, alive
       and in its ordinary state. For a release, the first waiting claim must be alive and exclusive, and have this key only, so that no
       other claim fits beside it. All other items stay deferred.
     - Items are executed in their order: once one stays deferred, all that follow do, too.
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

  --- A release of a claim that waits behind an exclusive holder, so that nobody is admitted for it. Returns the answer; nil: it stays
  --- deferred.
  local function leaveQueue(prefix, record, bucket, key, id)
    local _, holderExpires = unpackHead(HEAD, record)
    local holderTtl = match(record, '^%w+ (%d+) 1073741824 ', 37)
    if not holderTtl or holderExpires > nowMs + holderTtl then return nil end
    local hash, waitingKey = prefix .. 'h', prefix .. 'w:' .. key
    local claim = try('HGET', hash, 'c:' .. id)
    if type(claim) ~= 'string' or sub(claim, 1, 3) ~= 'C0o' then return nil end
    local _, expires, token = unpackHead(HEAD, claim)
    local entry, recall = match(claim, '^(%w+ %d+ %d+ %d+) %d+ %d+ %d(%d)\n', 37)
    if not entry or token > 0 or expires <= nowMs or not match(claim, '\n\n\n[^\n]*$', 60) then return nil end
    local ttl, permits, limit = match(entry, ' (%d+) (%d+) (%d+)$')
    entry = bucket .. id .. ':' .. permits .. ':' .. limit .. ':' .. ttl .. (recall == '1' and ':r' or '')
    if try('ZREM', waitingKey, entry) ~= 1 or type(try('HDEL', hash, 'c:' .. id)) == 'table' then return nil end
    isWritten = true
    if try('EXISTS', waitingKey) == 0 then try('HSET', hash, 'k:' .. key, 'T0' .. sub(record, 3)) end
    return '1'
  end

  --- A release. Returns the answer; nil: it stays deferred.
  local function release(index, bucket, key, id)
    local prefix = namePrefix .. '{' .. bucket .. '}:'
    local record = found[index] and found[index][1]
    if not found[index] then record = try('HGET', prefix .. 'h', 'k:' .. key) end
    if type(record) ~= 'string' or sub(record, 1, 3) ~= 'T1o' then return nil end
    local _, holderExpires = unpackHead(HEAD, record)
    if holderExpires <= nowMs then return nil end
    if sub(record, 37, 37 + #id) == id .. ' ' then return handOff(prefix, record, bucket, key, id) end
    return leaveQueue(prefix, record, bucket, key, id)
  end

  --- A new claim: enters the queue, or is refused. Returns the answer; nil: it stays deferred.
  local function enterQueue(index, bucket, key, id)
    local body = sub(ARGV[index], 5 + #key)
    local ttl, permits, limit, floor, waits, recall = match(body, '^%w+ (%d+) (%d+) (%d+) %d+ (%d+) (%d)(%d)\n')
    if #ttl >= 8 or floor - nowMicros > DAY * 1000 then return nil end
    local prefix = namePrefix .. '{' .. bucket .. '}:'
    local hash, field, waitingKey = prefix .. 'h', 'k:' .. key, prefix .. 'w:' .. key
    local read = found[index] or try('HMGET', hash, field, 'c:' .. id, 'n', 'e')
    local record = read[1]
    if not record or sub(record, 1, 1) ~= 'T' or sub(record, 3, 3) ~= 'o' or read[2] then return nil end
    local _, expires = unpackHead(HEAD, record)
    local holderId, holderTtl, holderRecall = match(record, '^(%w+) (%d+) 1073741824 %d+ %d+ %d+ %d(%d)\n', 37)
    -- not the claim itself, which is repeated
    if not holderId or holderId == id or expires <= nowMs or expires > nowMs + holderTtl then return nil end
    if waits == '0' then return 'n' end
    -- the time to live of the hash was set in the last hour
    if not read[4] or now - read[4] >= 3600 then return nil end

    local arrival = math.max(nowMicros, (read[3] or 0) + 1, (issued[bucket] or 0) + 1)
    local arrivalText, lifetime = formatInt(arrival), math.max(DAY, 2 * ttl)
    local entry = bucket .. id .. ':' .. permits .. ':' .. limit .. ':' .. ttl .. (recall == '1' and ':r' or '')
    local remaining = try('PTTL', waitingKey)
    if type(remaining) == 'table' or type(try('ZADD', waitingKey, arrivalText, entry)) == 'table' then return nil end
    local isKept = remaining >= lifetime or type(try('PEXPIRE', waitingKey, 2 * lifetime)) ~= 'table'
    local claim = packHead(HEAD, 'C0o', nowMs + ttl, 0, nowMs, 0, 1) .. body .. '\n\n\n' .. inbox
    local isFirst = sub(record, 2, 2) == '0' or remaining == -2 -- those who waited were evicted
    local fields = { 'c:' .. id, claim, 'n', arrivalText, isFirst and field or nil, isFirst and 'T1' .. sub(record, 3) or nil }
    if not isKept or type(try('HSET', hash, unpack(fields))) == 'table' then
      try('ZREM', waitingKey, entry)
      return nil
    end
    isWritten, issued[bucket], entered[id] = true, arrival, index
    local recheck = math.min(tonumber(ttl), expires - nowMs)
    if isFirst and holderRecall == '1' then
      pushTo(match(record, '\n([^\n]*)$'), holderId .. ' recalled ' .. bucket .. key)
      recheck = math.min(recheck, 200) -- FRONT_RECHECK_MS of renewal.lua
    end
    return 'w ' .. ttl .. ' ' .. math.max(recheck, 1) .. ' ' .. nowMsText
  end

  for _, item in ipairs(deferred) do
    mentioned[item.id or match(ARGV[item.index], '\n(%w+)')] = true
  end
  local left = nil
  for _, item in ipairs(deferred) do
    local answer = nil
    if left then
      -- in their order, as the general path grants and publishes
    elseif item.kind == 'R' then
      answer = release(item.index, item.bucket, item.key, item.id)
    elseif item.kind == 'C' then
      answer = enterQueue(item.index, item.bucket, item.key, item.id)
    end
    if answer then
      answers[item.index - 3], found[item.index] = answer, nil
    else
      left = left or {}
      left[#left + 1] = item
    end
  end
  deferred = left
end
