--[[ records.lua — the formats of requests, of records and of entries in a queue. Only the common paths (turn.lua, renew.lua)
     know a part of them beside this file.
     needs    prelude.lua
     defines  TOTALS, parseRequest, formatRecord, parseRecord, parseTombstone, formatTombstone, formatEntry, parseEntry, formatTotals,
              parseTotals

     A request names a claim:
           one key       <bucket><key> \n <id> <ttl> <permits> <limit>
           several keys  <locks as JSON: bucket, key, permits, limit of each> \n <id> <ttl> 0 0
     and, if it makes one, goes on: <space><tokens> <floor> <waits><recall> \n <label>. From the id on it is kept as it came: the body
     of the record.

     A record is HEAD (prelude.lua), then: body \n JSON of the locks, if there are several \n arrivals in the queues entered, if
     there are several \n inbox of its process. The label is the only part that may contain anything.
     A tombstone is "x <its end (ms)> <ttl> <end reason>".
     An entry is "<bucket><id>:<permits>:<limit>:<ttl>", and ":r" if its claim wants to be recalled: so the admission rule and the recall need
     no records.
     The totals of the admitted entries are members of their set, with the negative of the total as score, so they come before
     all entries: "used" (the sum of permits), "count", "recalling" (how many end with ":r"), and "time", when a lease was written last (ms). ]]
local TOTALS = 4 -- their number
local BODY = '^((%w+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d)(%d)\n.*)\n([^\n]*)\n([^\n]*)\n([^\n]*)$'
local NEW_BODY = '^((%w+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d)(%d)\n.*)$'

--- The locks as { bucket, key, permits, limit }, all text.
local function parseLocks(json)
  local locks = cjson.decode(json)
  return locks, #locks
end

--- Parses a request. The fields of a new claim are nil in a request that only names one.
local function parseRequest(text)
  local first, body = match(text, '^([^\n]*)\n(.*)$')
  local id, ttl, permits, limit = match(body, '^(%w+) (%d+) (%d+) (%d+)')
  local request = { id = id, ttl = tonumber(ttl), json = '', count = 1 }
  if sub(first, 1, 1) == '[' then
    request.json = first
    request.locks, request.count = parseLocks(first)
  else
    request.locks = { { sub(first, 1, 2), sub(first, 3), permits, limit } }
  end
  request.bucket = request.locks[1][1]
  local whole, _, _, _, _, tokens, floor, waits, recall = match(body, NEW_BODY)
  if whole then
    request.body, request.tokens, request.floor = whole, tonumber(tokens), tonumber(floor)
    request.waits, request.recall = waits == '1', recall == '1'
  end
  return request
end

--- The record of a claim. `form`: "T" with `flag` for waiting claims, or "C0".
local function formatRecord(claim, form)
  local head = struct.pack(HEAD, form .. claim.state, claim.expires, claim.token, claim.placedAt, claim.lastMissedAt,
    claim.enteredCount)
  return head .. claim.body .. '\n' .. claim.json .. '\n' .. claim.arrivals .. '\n' .. claim.inbox
end

--- The claim of a record. A lease that a backward step of the clock made longer than the ttl is cut to the ttl; the script that
--- reads it must write that: a cut that is not written never ends while the clock is behind.
local function parseRecord(bucket, record)
  local head, expires, token, placedAt, lastMissedAt, enteredCount = struct.unpack(HEAD, record)
  local body, id, ttl, permits, limit, tokens, floor, waits, recall, json, arrivals, claimInbox =
    match(sub(record, HEAD_SIZE + 1), BODY)
  ttl = tonumber(ttl)
  local claim = {
    bucket = bucket, id = id, expires = math.min(expires, nowMs + ttl), isCut = expires > nowMs + ttl, token = token,
    placedAt = placedAt, lastMissedAt = lastMissedAt, enteredCount = enteredCount, state = sub(head, 3, 3), body = body,
    ttl = ttl, tokens = tonumber(tokens), floor = tonumber(floor), waits = waits == '1', recall = recall == '1',
    json = json, arrivals = arrivals, inbox = claimInbox, count = 1, permits = permits, limit = limit,
  }
  if json ~= '' then claim.locks, claim.count = parseLocks(json) end
  return claim
end

local function formatTombstone(reason, endsAt, ttl)
  return 'x ' .. endsAt .. ' ' .. ttl .. ' ' .. reason
end

--- The end, ttl and reason of a tombstone; nil: it is a record.
local function parseTombstone(text)
  local endsAt, ttl, reason = match(text, '^x (%d+) (%d+) (.*)$')
  return tonumber(endsAt), tonumber(ttl), reason
end

local function formatEntry(claim, lock)
  return claim.bucket .. claim.id .. ':' .. lock[3] .. ':' .. lock[4] .. ':' .. claim.ttl .. (claim.recall and ':r' or '')
end

--- Parses an entry: bucket and id of its claim, permits, limit, ttl, and ":r" or "".
local function parseEntry(entry)
  return match(entry, '^(..)(%w+):(%d+):(%d+):(%d+)(.*)$')
end

--- Scores and members for ZADD: the totals of a queue.
local function formatTotals(queue)
  return -queue.used .. '', 'used', -queue.count .. '', 'count', -queue.recalling .. '', 'recalling', -nowMs .. '', 'time'
end

--- The totals at the beginning of a set with its scores, or nil.
local function parseTotals(members)
  local totals = {}
  for index = 1, 2 * TOTALS, 2 do totals[members[index] or ''] = -tonumber(members[index + 1] or 0) end
  return totals.used and totals.count and totals.recalling and totals.time and totals or nil
end
