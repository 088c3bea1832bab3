--[[ list.lua — lists the claims in the queues of some keys, each queue from its front. Writes nothing.
     KEYS  1 routes the call
     ARGV  prefix of names, maximum of waiting entries to return of a queue, then for each queue: bucket, key, index of the first waiting
           entry to return (0: return the admitted entries, too); or bucket, key, and "@" .. bucket .. id of one claim over
           several keys that may not have entered this queue yet
     Returns the store's time (ms), then for each of these { "1" if there are more, then twelve fields of each claim: id, end
           of lease, ttl, token, tokens, floor, time of the claim, label, waits, permits, limit, locks as JSON or "" }
     Cost  O(admitted + maximum) for each queue ]]
--- include lib/prelude.lua
--- include lib/records.lua
local maxWaiting = tonumber(ARGV[2])

--- The fields of a claim, and its arrival in the queue of this key; nil if the claim has ended.
local function readView(owner, id, key)
  local claim = readClaim(owner, id)
  if not isLive(claim) then return nil end
  local placedAt, waitFlag, arrivalsText, json, offset = struct.unpack(DETAILS_FORMAT, claim.details)
  local arrivals = {}
  for arrival in string.gmatch(arrivalsText, '%d+') do arrivals[#arrivals + 1] = tonumber(arrival) end
  local arrival = arrivals[1]
  for position, lock in ipairs(claim.count > 1 and readLocks(claim) or {}) do
    if lock[2] == key then arrival = arrivals[position] or 0 end
  end
  local fields = {
    id, claim.expires .. '', claim.ttl .. '', formatInt(claim.token), claim.tokens .. '', formatInt(claim.floor),
    placedAt .. '', string.sub(claim.details, offset), waitFlag, '', '', json,
  }
  return fields, arrival
end

local function addView(list, owner, id, key, permits, limit)
  local fields, arrival = readView(owner, id, key)
  if not fields then return end
  fields[10], fields[11] = permits, limit
  list[#list + 1] = { arrival, fields }
end

local function readQueue(bucket, key, from)
  local admitted, waiting = {}, {}
  local function addViews(list, entries)
    for _, entry in ipairs(entries) do
      local owner, id, permits, limit = parseEntry(entry)
      addView(list, owner, id, key, permits, limit)
    end
  end
  if from == 0 then addViews(admitted, call('ZRANGE', keyName(bucket, 'a', key), 0, -1)) end
  table.sort(admitted, function(left, right) return left[1] < right[1] end)
  local entries = call('ZRANGE', keyName(bucket, 'w', key), from, from + maxWaiting)
  local hasMore = #entries > maxWaiting
  if hasMore then entries[#entries] = nil end
  addViews(waiting, entries)
  return hasMore, admitted, waiting
end

local result = { nowMsText }
for index = 3, #ARGV, 3 do
  local bucket, key, selector = ARGV[index], ARGV[index + 1], ARGV[index + 2]
  local hasMore, admitted, waiting = false, {}, {}
  if match(selector, '^%d+$') then
    hasMore, admitted, waiting = readQueue(bucket, key, tonumber(selector))
  else
    addView(waiting, string.sub(selector, 2, 3), string.sub(selector, 4), key, '', '')
  end
  local fields = { hasMore and '1' or '0' }
  for _, list in ipairs({ admitted, waiting }) do
    for _, item in ipairs(list) do
      for _, value in ipairs(item[2]) do fields[#fields + 1] = value end
    end
  end
  result[#result + 1] = fields
end
return result
