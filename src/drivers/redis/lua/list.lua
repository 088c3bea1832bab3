--[[ list.lua — lists the claims in the queues of some keys, each queue from its front. Writes nothing.
     KEYS  1 routes the call
     ARGV  root, maximum of waiting entries to return of a queue, then for each queue: bucket, key, index of the first waiting
           entry to return (0: return the admitted entries, too); or bucket, key, and "@" .. bucket .. id of one claim over
           several keys that may not have entered this queue yet
     Returns the store's time (ms), then for each of these { "1" if there are more, then twelve fields of each claim: id, end
           of lease, ttl, token, tokens, floor, time of the claim, label, waits, permits, limit, locks as JSON or "" }
     Cost  O(admitted + maximum) for each queue ]]
--- include lib/prelude.lua
--- include lib/records.lua
local most = tonumber(ARGV[2])

--- The fields of a claim, and its arrival in the queue of this key; nil if the claim has ended.
local function view(owner, id, key)
  local claim = read(owner, id)
  if not claim or claim.ended or claim.expires <= now then return nil end
  local placed, waits, arrived, json, at = struct.unpack(REST, claim.rest)
  local arrivals = {}
  for arrival in string.gmatch(arrived, '%d+') do arrivals[#arrivals + 1] = tonumber(arrival) end
  local arrival = arrivals[1]
  for stage, hold in ipairs(claim.count > 1 and holdsOf(claim) or {}) do
    if hold[2] == key then arrival = arrivals[stage] or 0 end
  end
  local texts = {
    id, claim.expires .. '', claim.ttl .. '', text(claim.token), claim.tokens .. '', text(claim.floor), placed .. '',
    string.sub(claim.rest, at), waits, '', '', json,
  }
  return texts, arrival
end

local function add(list, owner, id, key, permits, limit)
  local texts, arrival = view(owner, id, key)
  if not texts then return end
  texts[10], texts[11] = permits, limit
  list[#list + 1] = { arrival, texts }
end

local function line(bucket, key, from)
  local admitted, waiting = {}, {}
  local function addAll(list, places)
    for _, place in ipairs(places) do
      local owner, id, permits, limit = parse(place)
      add(list, owner, id, key, permits, limit)
    end
  end
  if from == 0 then addAll(admitted, call('ZRANGE', named(bucket, 'a', key), 0, -1)) end
  table.sort(admitted, function(one, other) return one[1] < other[1] end)
  local places = call('ZRANGE', named(bucket, 'w', key), from, from + most)
  local more = #places > most
  if more then places[#places] = nil end
  addAll(waiting, places)
  return more, admitted, waiting
end

local result = { clock }
for at = 3, #ARGV, 3 do
  local bucket, key, which = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local more, admitted, waiting = false, {}, {}
  if match(which, '^%d+$') then
    more, admitted, waiting = line(bucket, key, tonumber(which))
  else
    add(waiting, string.sub(which, 2, 3), string.sub(which, 4), key, '', '')
  end
  local texts = { more and '1' or '0' }
  for _, list in ipairs({ admitted, waiting }) do
    for _, one in ipairs(list) do
      for _, value in ipairs(one[2]) do texts[#texts + 1] = value end
    end
  end
  result[#result + 1] = texts
end
return result
