--[[ codec.lua — turns requests, records and totals, whose formats are those of records.lua, into tables, and back.
     needs    prelude.lua, records.lua
     defines  parseRequest, formatRecord, parseRecord, formatTombstone, parseTombstone, formatEntry, formatTotals,
              parseTotals ]]
--- constants records.lua

--- The locks as { bucket, key, permits, limit }, all text.
local function parseLocks(json)
  local locks = cjson.decode(json)
  return locks, #locks
end

--- Parses a request. The fields of a new claim are nil in a request that only names one.
local function parseRequest(text)
  local first, body, id, ttl, permits, limit = match(text, REQUEST)
  local request = { id = id, ttl = tonumber(ttl), json = '', count = 1 }
  if sub(first, 1, 1) == '[' then
    request.json = first
    request.locks, request.count = parseLocks(first)
  else
    request.locks = { { sub(first, 1, 2), sub(first, 3), permits, limit } }
  end
  request.bucket = request.locks[1][1]
  local _, _, _, _, tokens, floor, waits, wants = match(body, BODY)
  if tokens then
    request.body, request.tokens, request.floor = body, tonumber(tokens), tonumber(floor)
    request.waits, request.wantsRecall = waits ~= DOES_NOT_WAIT, wants == WANTS_RECALL
  end
  return request
end

--- The record of a claim in this form.
local function formatRecord(claim, form)
  local head = struct.pack(HEAD, form .. claim.state, claim.expires, claim.token, claim.createdAt, claim.lastMissedAt,
    claim.enteredCount)
  return head .. claim.body .. '\n' .. claim.json .. '\n' .. claim.arrivals .. '\n' .. claim.inbox
end

--- The claim of a record. A lease that a backward step of the clock made longer than the ttl is cut to the ttl; the
--- script that reads it must write that: a cut that is not written never ends while the clock is behind.
local function parseRecord(bucket, record)
  local head, expires, token, createdAt, lastMissedAt, enteredCount = struct.unpack(HEAD, record)
  local body, id, ttl, permits, limit, tokens, floor, waits, wants, json, arrivals, claimInbox =
    match(sub(record, BODY_AT), AFTER_HEAD)
  ttl = tonumber(ttl)
  local claim = {
    bucket = bucket, id = id, expires = math.min(expires, nowMs + ttl), isCut = expires > nowMs + ttl, token = token,
    createdAt = createdAt, lastMissedAt = lastMissedAt, enteredCount = enteredCount, state = sub(head, STATE_AT), body = body,
    ttl = ttl, tokens = tonumber(tokens), floor = tonumber(floor), waits = waits ~= DOES_NOT_WAIT, wantsRecall = wants == WANTS_RECALL,
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
  local endsAt, ttl, reason = match(text, TOMBSTONE)
  return tonumber(endsAt), tonumber(ttl), reason
end

local function formatEntry(claim, lock)
  return joinEntry(claim.bucket, claim.id, lock[3], lock[4], claim.ttl, claim.wantsRecall)
end

--- Scores and members for ZADD: the totals of a queue.
local function formatTotals(queue)
  return -queue.used .. '', 'used', -queue.count .. '', 'count', -queue.recalling .. '', 'recalling', -nowMs .. '', WRITTEN_AT
end

--- The totals at the beginning of a set with its scores, or nil.
local function parseTotals(members)
  local totals = {}
  for index = 1, 2 * TOTALS, 2 do totals[members[index] or ''] = -tonumber(members[index + 1] or 0) end
  return totals.used and totals.count and totals.recalling and totals.time and totals or nil
end
