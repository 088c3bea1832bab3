--[[ list.lua — lists the claims in the queues of some keys, each queue from its front. Writes nothing.
     KEYS  1 routes the call
     ARGV  prefix of names, maximum of waiting entries to return of a queue, "", then for each queue: bucket, key, index
           of the first waiting entry to return (0: return the admitted entries, too); or bucket, key, and "@" .. bucket
           .. id of one claim over several keys that may not have entered this queue yet
     Returns the store's time (ms), then for each of these { "1" if there are more, then twelve fields of each claim: id,
           end of lease, ttl, token, tokens, floor, time of the claim, label, waits, permits, limit, locks as JSON or "" }
     Cost  O(admitted + maximum) for each queue ]]
--- include lib/prelude.lua
--- include lib/records.lua
--- include lib/codec.lua
local maxWaiting = tonumber(ARGV[2])

--- The number that the claim got when it entered the queue of this key, or 0.
local function findArrival(claim, key)
  local position, arrivals = 1, {}
  for arrival in string.gmatch(claim.arrivals, '%d+') do arrivals[#arrivals + 1] = tonumber(arrival) end
  for index, lock in ipairs(claim.locks or {}) do
    if lock[2] == key then position = index end
  end
  return arrivals[position] or claim.token
end

local function addView(views, bucket, record, key, permits, limit)
  if not record or record == FULL or parseTombstone(record) then return end
  local claim = parseRecord(bucket, record)
  if claim.expires <= nowMs then return end
  local fields = {
    claim.id, claim.expires .. '', claim.ttl .. '', formatInt(claim.token), claim.tokens .. '', formatInt(claim.floor),
    claim.createdAt .. '', match(claim.body, '\n(.*)$'), claim.waits and '1' or '0', permits or claim.permits,
    limit or claim.limit, claim.json,
  }
  views[#views + 1] = { findArrival(claim, key), fields }
end

local function addEntries(views, entries, key)
  for _, entry in ipairs(entries) do
    local owner, id, permits, limit = match(entry, ENTRY)
    addView(views, owner, call('HGET', nameKey(owner, HASH), CLAIM_FIELD .. id), key, permits, limit)
  end
end

local function readQueue(bucket, key, from)
  local admitted, waiting = {}, {}
  local record = call('HGET', nameKey(bucket, HASH), KEY_FIELD .. key)
  if not record then return false, admitted, waiting end
  if from == 0 and record == FULL then
    addEntries(admitted, call('ZRANGE', nameKey(bucket, ADMITTED .. key), TOTALS, -1), key)
    table.sort(admitted, function(left, right) return left[1] < right[1] end)
  elseif from == 0 then
    addView(admitted, bucket, record, key)
  end
  if match(record, IS_LONE) then return false, admitted, waiting end
  local entries = call('ZRANGE', nameKey(bucket, WAITING .. key), from, from + maxWaiting)
  local hasMore = #entries > maxWaiting
  if hasMore then entries[#entries] = nil end
  addEntries(waiting, entries, key)
  return hasMore, admitted, waiting
end

local result = { nowMsText }
for index = 4, #ARGV, 3 do
  local bucket, key, selector = ARGV[index], ARGV[index + 1], ARGV[index + 2]
  local hasMore, admitted, waiting = false, {}, {}
  if match(selector, '^%d+$') then
    hasMore, admitted, waiting = readQueue(bucket, key, tonumber(selector))
  else
    local owner, id = sub(selector, 2, 3), sub(selector, 4)
    addView(waiting, owner, call('HGET', nameKey(owner, HASH), CLAIM_FIELD .. id), key, '', '')
  end
  local fields = { hasMore and '1' or '0' }
  for _, views in ipairs({ admitted, waiting }) do
    for _, view in ipairs(views) do
      for _, value in ipairs(view[2]) do fields[#fields + 1] = value end
    end
  end
  result[#result + 1] = fields
end
return result
