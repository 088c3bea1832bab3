--[[ turn.lua — the claims and releases of one turn of the event loop, releases first. One round trip.
     KEYS  1 any name in the bucket: routes the call
     ARGV  the three of lib/prelude.lua, then the items: requests (lib/records.lua) after a letter, which is
           C  makes a claim with one key, or finds it by its id, and answers whether it is held
           M  the same for a claim with several keys
           R  releases a claim with one key
           U  releases a claim of which a `claim` call may still arrive: a tombstone keeps it out
           S  releases a claim with several keys; V the same, of which a call may still arrive
           G  releases a claim that the caller got a push about and does not have: <bucket><first key> \n <id>
     Returns lines: an answer for each item, then a push for each claim that was granted or recalled and has the caller's
           own inbox. Answers of claims: "h <token> <tokens> <remaining ttl> <store ms>", or "r ..." if another claim waits for it and it wants to
           be recalled | "w <remaining ttl> <recheck> <store ms>" | "n [end reason]" | "p <end of grace period (ms)> <store
           ms>": not granted because of a grace period | "f": the floor is more than a day ahead of the clock. In a grace
           period "h" and "w" end with another field, its end (ms). Answers of releases: "1" if the claim was there, else
           "0". Of both: "e <error>": Redis refused a command of this item
     Cost  on the common path (a free key, a holder without waiters) two commands for each item; on the contended path
           (lib/contended.lua) six for a hand-off, up to nine with successors, and about five for all the claims for one key that enter
           or leave its queue together; else O(admitted + expired entries) for each queue, and one PUBLISH for each grant to another
           process

     Invariants
     - Items of one key are executed in their order: once one is deferred, those that follow are, too.
     - The common path decides only what needs no other record than that of the key, and writes it with one command.
     - A refused command fails its item, never the call. If one of the deferred items fails, each of them is executed
       again by itself: claims and releases may be repeated. ]]
--- include lib/prelude.lua
--- include lib/grace.lua
local unpackHead, packHead = struct.unpack, struct.pack
local answers, deferred, found, isWritten = {}, nil, {}, false
local deferredKeys, weededBucket, issued = nil, nil, {}
for index = 4, #ARGV do
  local item, answer, bucket, key, id = ARGV[index], nil, nil, nil, nil
  local kind = sub(item, 1, 1)
  if kind == 'C' then
    local body, ttl, tokens, floor
    bucket, key, body, id, ttl, tokens, floor = match(item, '^C(..)([^\n]+)\n((%w+) (%d+) %d+ %d+ (%d+) (%d+) .*)$')
    if not deferred or not deferredKeys[key] and not deferredKeys[''] then
      local hash = namePrefix .. '{' .. bucket .. '}:h'
      local read = try('HMGET', hash, 'k:' .. key, 'c:' .. id, 'n', 'e')
      -- the key is free, the claim is new, and the time to live of the hash was set in the last hour
      if not read.err and not read[1] and not read[2] and read[4] and now - read[4] < 3600 and #ttl < 8 and not inGracePeriod then
        local token = math.max(nowMicros, floor, (read[3] or 0) + 1, tokenFloor + 1)
        local highest = token + tokens - 1
        if floor - nowMicros <= DAY * 1000 and highest <= tokenCeiling - MIN_LEAD then
          local tokenText = formatInt(token)
          local record = packHead(HEAD, 'T0o', nowMs + ttl, token, nowMs, 0, 1) .. body .. '\n\n\n' .. inbox
          local reply = try('HSET', hash, 'k:' .. key, record, 'n', tokens == '1' and tokenText or formatInt(highest))
          if type(reply) ~= 'table' then
            answer = 'h ' .. tokenText .. ' ' .. tokens .. ' ' .. ttl .. ' ' .. nowMsText
          end
          issued[bucket] = highest
          if sub(id, -1) == 'a' then weededBucket = bucket end -- one of 32
        end
      end
      if not answer and not read.err then found[index] = read end
    end
  elseif kind == 'R' then
    bucket, key, id = match(item, '^R(..)([^\n]+)\n(%w+)')
    if not deferred or not deferredKeys[key] and not deferredKeys[''] then
      local hash, field = namePrefix .. '{' .. bucket .. '}:h', 'k:' .. key
      local record = try('HGET', hash, field)
      -- it holds the key, no claim waits, and its state is ordinary
      if type(record) == 'string' and sub(record, 1, 3) == 'T0o' and sub(record, 37, 37 + #id) == id .. ' ' then
        local _, expires = unpackHead(HEAD, record)
        if expires > nowMs and try('HDEL', hash, field) == 1 then answer, isWritten = '1', true end
      end
      if not answer and type(record) ~= 'table' then found[index] = { record } end
    end
  elseif kind == 'U' then
    bucket, key, id = match(item, '^U(..)([^\n]+)\n(%w+)')
  end
  answers[index - 3] = answer or ''
  if not answer then
    deferred, deferredKeys = deferred or {}, deferredKeys or {}
    -- "" stands for all keys: a claim with several of them
    deferred[#deferred + 1] = { index = index, kind = kind, bucket = bucket, key = key or '', id = id }
    deferredKeys[key or ''] = true
  end
end
if not deferred and not weededBucket then return table.concat(answers, '\n') end

local pushes = {} -- for the caller's own process: a line each
local entered = {} -- by id: the items whose claims the contended path has put in a queue
--- include lib/contended.lua
if deferred and not inGracePeriod then executeContended() end
if not deferred and not weededBucket then return table.concat(answers, '\n') .. table.concat(pushes) end

-- a function, so that the common path has few locals: Lua makes room for all of them whenever a script starts
local function executeDeferred()
--- include lib/records.lua
--- include lib/claims.lua
--- include lib/queue.lua
--- include lib/tokens.lua
--- include lib/answers.lua
--- include lib/admission.lua
--- include lib/renewal.lua
--- include lib/weeding.lua

local function releaseClaim(request, isUnanswered)
  local claim = findClaim(request)
  local result, mayArrive = '0', isUnanswered
  if not claim then
    removeUnknown(request)
    -- it may have been held before the loss of data; nothing was granted since. The tombstone stops a late claim call
    if inGracePeriod then result, mayArrive = '1', true end
  elseif claim.ended then
    for _, lock in ipairs(hasFailed and request.locks or {}) do loadQueue(getQueue(lock[1], lock[2])) end -- to write their forms
  else
    local wasLive, isAll = isLive(claim), removeClaim(claim) == claim.enteredCount
    if wasLive then
      if isAll and claim.state ~= 'r' then result = '1' end
      if claim.state ~= 'o' then
        addTombstone(claim.bucket, claim.id, claim.state == 'r' and 'revoked' or 'released', claim.ttl)
      end
    else
      addTombstone(claim.bucket, claim.id, 'expired', claim.ttl)
    end
  end
  if mayArrive then addTombstone(request.bucket, request.id, 'released', request.ttl) end
  return result
end

--- The release of this claim was lost. Not if another process has it now, or it was detached.
local function giveBack(request)
  local queue = getQueue(request.bucket, request.key)
  loadQueue(queue)
  local claim = readClaimIn(queue, request.bucket, request.id)
  if not isLive(claim) or claim.state ~= 'o' or claim.inbox ~= inbox then return '0' end
  removeClaim(claim)
  return '1'
end

hasWritten = isWritten
local requests, deferredIndices = {}, {}
for _, item in ipairs(deferred or {}) do deferredIndices[#deferredIndices + 1] = item.index end
for _, index in ipairs(deferredIndices) do
  local request
  local bucket, key, id = match(ARGV[index], '^G(..)([^\n]+)\n(%w+)$')
  if bucket then
    request = { bucket = bucket, key = key, id = id, isUnknown = true }
  else
    request = parseRequest(sub(ARGV[index], 2))
    request.mayArrive = match(ARGV[index], '^[UV]') ~= nil
  end
  requests[index] = request
end

--- Executes deferred items (indices of ARGV), and writes what they have changed.
local function execute(items)
  for id in pairs(entered) do answeredHere[id] = true end
  for _, index in ipairs(items) do
    local request = requests[index]
    if request.body then answeredHere[request.id] = true else mustSucceed = true end
  end
  for _, index in ipairs(items) do
    local request = requests[index]
    local answer = request.isUnknown and giveBack(request) or request.body and makeClaim(request)
      or releaseClaim(request, request.mayArrive)
    -- executed twice, since the first time another item failed: then the claim may have been released already
    if answers[index - 3] ~= '1' then answers[index - 3] = answer end
  end
  if weededBucket then weedBucket(weededBucket) end
  finish()
  for _, index in ipairs(items) do answers[index - 3] = finalAnswer(answers[index - 3], requests[index].id) end
  for id, index in pairs(entered) do answers[index - 3] = finalAnswer(answers[index - 3], id) end
end

local function forgetAll()
  claims, readFields, buckets, pending, queues, loadedQueues, touchedQueues, staleSets = {}, {}, {}, {}, {}, {}, {}, {}
  answeredHere, grantedHere, recalls, weededBucket, mustSucceed, hasWritten = {}, {}, {}, nil, false, false
  hasFailed = true
end

-- what the common path has read is still true: no item of these keys was executed since
for index, read in pairs(found) do
  local request = requests[index]
  local hash = hashName(request.bucket)
  readFields[hash .. 'k:' .. request.locks[1][2]] = read[1]
  if request.body then
    readFields[hash .. 'c:' .. request.id] = read[2]
    local known = buckets[request.bucket] and buckets[request.bucket].last or 0
    setBucket(request.bucket, math.max(read[3] or 0, known, issued[request.bucket] or 0), read[4])
  end
end
--- What a failed execution has left of a new claim, which would count as another claim.
local function removeLeftovers(request)
  if findClaim(request) then return end
  removeUnknown(request)
  -- also while the form does not say that claims wait
  for _, lock in ipairs(request.locks) do removeWaiting(getQueue(lock[1], lock[2]), formatEntry(request, lock)) end
  finish()
end

local function describeFailure(failure)
  return (string.gsub(type(failure) == 'table' and failure.err or failure, '%c', ' '))
end

local isDone, failure = pcall(execute, deferredIndices)
local failed = isDone and {} or deferredIndices
-- for lack of memory Redis refuses the first write only, so nothing is left
local mayHaveWritten = not isDone and not string.find(describeFailure(failure), 'OOM', 1, true)
for _, index in ipairs(mayHaveWritten and failed or {}) do
  forgetAll()
  if requests[index].body then pcall(removeLeftovers, requests[index]) end
end
-- each item by itself: one that fails does not fail the others
for _, index in ipairs(failed) do
  forgetAll()
  isDone, failure = pcall(execute, { index })
  if not isDone then
    local text = describeFailure(failure)
    -- a replica: nothing was written, and client libraries look for this error to connect to the master
    if string.find(text, 'READONLY', 1, true) then return redis.error_reply(text) end
    answers[index - 3] = 'e ' .. text
  end
end
for _, message in ipairs(ownPushes) do pushes[#pushes + 1] = '\n' .. message end
return table.concat(answers, '\n') .. table.concat(pushes)
end
return executeDeferred()
