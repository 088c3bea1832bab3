--[[ general.lua — the general path of turn.lua: executes the items that the other two paths have left, whatever they
     are, and returns the reply.
     needs    prelude.lua, names.lua, grace.lua, free_key.lua, turn.lua
     defines  nothing

     Invariants
     - Items are executed in their order. If one of them fails, each is executed again by itself: claims and releases
       may be repeated.
     - What the common path has read is still true when this path begins: no item of these keys was executed since. ]]
--- constants prelude.lua
--- constants records.lua
--- constants free_key.lua
--- include codec.lua
--- include work.lua
--- include claims.lua
--- include queue.lua
--- include tokens.lua
--- include answers.lua
--- include admission.lua
--- include renewal.lua
--- include weeding.lua

local requests = {} -- by index of ARGV

local function parseItem(index)
  local kind, text = match(ARGV[index], '^M?(.)(.*)$')
  if kind == 'G' then
    local bucket, key, id = match(text, NAME)
    return { bucket = bucket, key = key, id = id, isUnknown = true }
  end
  local request = parseRequest(text)
  request.mayArrive = kind == 'U'
  return request
end

local function releaseClaim(request)
  local claim = findClaim(request)
  local result, mayArrive = '0', request.mayArrive
  if not claim then
    removeUnknown(request)
    -- it may have been held before the loss of data; nothing was granted since. The tombstone stops a late claim call
    if inGracePeriod then result, mayArrive = '1', true end
  elseif claim.ended then
    for _, lock in ipairs(hasFailed and request.locks or {}) do getQueue(lock[1], lock[2]) end -- to write their forms
  else
    local wasLive, isAll = isLive(claim), removeClaim(claim) == claim.enteredCount
    if wasLive then
      if isAll and claim.state ~= REVOKED then result = '1' end
      if claim.state ~= ORDINARY then
        addTombstone(claim.bucket, claim.id, claim.state == REVOKED and 'revoked' or 'released', claim.ttl)
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
  local claim = readClaimIn(getQueue(request.bucket, request.key), request.bucket, request.id)
  if not isLive(claim) or claim.state ~= ORDINARY or claim.inbox ~= inbox then return '0' end
  removeClaim(claim)
  return '1'
end

--- Executes deferred items (indices of ARGV), and writes what they have changed.
local function execute(items)
  for id in pairs(entered) do work.answeredHere[id] = true end
  for _, index in ipairs(items) do
    local request = requests[index]
    if request.body then work.answeredHere[request.id] = true else work.mustSucceed = true end
  end
  for _, index in ipairs(items) do
    local request = requests[index]
    local answer = request.isUnknown and giveBack(request) or request.body and makeClaim(request) or releaseClaim(request)
    -- executed twice, since the first time another item failed: then the claim may have been released already
    if answers[index - 3] ~= '1' then answers[index - 3] = answer end
  end
  if weededBucket and not hasFailed then weedBucket(weededBucket) end
  finish()
  for _, index in ipairs(items) do answers[index - 3] = finalAnswer(answers[index - 3], requests[index].id) end
  for id, index in pairs(entered) do answers[index - 3] = finalAnswer(answers[index - 3], id) end
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

--- What the other paths have read and done.
local function takeOver()
  work.hasWritten = hasWritten
  for index, read in pairs(found) do
    local request = requests[index]
    local hash, numbers = nameKey(request.bucket, HASH), work.buckets[request.bucket]
    work.readFields[hash .. KEY_FIELD .. request.locks[1][2]] = read[OF_KEY]
    if request.body then
      work.readFields[hash .. CLAIM_FIELD .. request.id] = read[OF_CLAIM]
      local last = math.max(read[LAST_ISSUED] or 0, numbers and numbers.last or 0, issued[request.bucket] or 0)
      setBucket(request.bucket, last, read[EXTENDED_AT])
    end
  end
end

local indices = {}
for position, item in ipairs(deferred or {}) do
  indices[position] = item.index
  requests[item.index] = parseItem(item.index)
end
takeOver()
local isDone, failure = pcall(execute, indices)
local failed = isDone and {} or indices
-- for lack of memory Redis refuses the first write only, so nothing is left
local mayHaveWritten = not isDone and not string.find(describeFailure(failure), 'OOM', 1, true)
for _, index in ipairs(mayHaveWritten and failed or {}) do
  startOver()
  if requests[index].body then pcall(removeLeftovers, requests[index]) end
end
-- each item by itself: one that fails does not fail the others
for _, index in ipairs(failed) do
  startOver()
  isDone, failure = pcall(execute, { index })
  if not isDone then
    local text = describeFailure(failure)
    -- a replica: nothing was written, and client libraries look for this error to connect to the master
    if string.find(text, 'READONLY', 1, true) then return redis.error_reply(text) end
    answers[index - 3] = 'e ' .. text
  end
end
return joinReply()
