--[[ list.lua — the claims in the lines of some keys, each line from its front. Writes nothing.
     KEYS  1 where to send the call
     ARGV  root, most waiting places to give of a line, then for each line: bucket, key, first waiting place to give (from
           0; then the admitted, too); or bucket, key, and "@" .. bucket .. id of one claim over several keys that may not have
           come to this key yet
     Gives the store's ms, then for each of these { are there more, then twelve texts a claim: id, end of lease, ttl, token,
           tokens, floor, placed at, label, waits, permits, limit, holds as JSON or "" }
     Work  O(admitted + most) a line ]]
--- include lib/prelude.lua
--- include lib/records.lua
local most = tonumber(ARGV[2])

--- A claim's texts, and its arrival in the line of this key; nil if it is no more.
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
