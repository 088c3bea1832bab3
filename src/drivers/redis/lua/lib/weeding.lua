--[[ weeding.lua — finds fields of a bucket that are not needed any more: one claim in 32 looks at 32 at random.
     needs    prelude.lua, names.lua, grace.lua, codec.lua, work.lua, claims.lua, queue.lua, admission.lua
     defines  weedBucket

     Stale are: the record of a holder, or of a claim, one ttl after the end of its lease; a tombstone after its end; a
     key in full form or with waiters whose sorted sets are gone, or in which everybody is dead; the name of a claim
     over several keys that is gone. A claim a second in a bucket looks at more than 80,000 fields a day. ]]
--- constants prelude.lua
--- constants records.lua
local SAMPLE_SIZE <const> = 32

--- A key that is not free: loading it settles it, and writes its form again if that has changed.
local function weedKey(bucket, key, value)
  if work.queues[key] then return end -- an item of this call may have changed it
  if match(value, IS_THIN) then
    local expires = select(2, struct.unpack(HEAD, value))
    if expires > nowMs then return end
  elseif call('EXISTS', nameKey(bucket, ADMITTED .. key)) == 1 then
    return -- this set lives no longer than the leases in it
  end
  local queue = getQueue(bucket, key)
  if queue.stored == LONE and queue.count == 0 and queue.holder.expires + queue.holder.ttl > nowMs then
    queue.isChanged = false -- its holder may still ask what became of it
    return
  end
  if not inGracePeriod then firstLiveWaiting(queue) end
  markTouched(queue)
  queue.isChanged = true
end

local function weedClaim(bucket, id, value)
  local endsAt, ttl, reason = parseTombstone(value)
  if endsAt then
    if endsAt > nowMs + ttl then -- the clock has stepped back
      put(nameKey(bucket, HASH), CLAIM_FIELD .. id, formatTombstone(reason, nowMs + ttl, ttl))
    elseif endsAt <= nowMs then
      put(nameKey(bucket, HASH), CLAIM_FIELD .. id, false)
    end
    return
  end
  local claim = readClaim(bucket, id)
  if claim and claim.hasOwnField and claim.expires + claim.ttl <= nowMs then forgetClaim(claim) end
end

local function weedBucket(bucket)
  local hash = nameKey(bucket, HASH)
  local fields = call('HRANDFIELD', hash, SAMPLE_SIZE, 'WITHVALUES')
  for index = 1, #fields, 2 do
    local field, value = fields[index], fields[index + 1]
    local kind, name = match(field, FIELD)
    if work.pending[hash] and work.pending[hash][field] ~= nil then
      -- this call replaces what was read: the record of a claim that is made again, for example
    elseif kind == KEY_FIELD then
      weedKey(bucket, name, value)
    elseif kind == CLAIM_FIELD then
      weedClaim(bucket, name, value)
    elseif kind == LISTED_FIELD then
      local _, owner, id = match(name, LISTED)
      local claim = readClaim(owner, id)
      if not isLive(claim) then put(hash, field, false) end
    end
  end
end
