--[[ renew.lua — restarts the leases of claims, held and waiting alike, and answers for each. One round trip.
     KEYS  1 routes the call
     ARGV  the three of lib/prelude.lua, then for each claim its request (lib/records.lua); \n and the number of tokens
           that it shall have, if it is held and has less
     Returns one answer for each claim, as turn.lua, or "b <end of grace period (ms)>": the claim is unknown or expired
           after a loss of data, which may have lost a renewal; if it was held, the caller may restore it
     Cost  on the common path (a holder in thin form) one read and one write of a field, and only the read while more
           than seven eighths of the lease are left; else O(admitted + expired entries) ]]
--- include lib/prelude.lua
--- include lib/grace.lua
local unpackHead, packHead = struct.unpack, struct.pack
local ending = ONE_KEY .. inbox -- of a record whose process is the caller
local answers, deferred = {}, nil
for index = 4, #ARGV do
  local bucket, key, id, ttl = match(ARGV[index], ONE_KEY_NAME)
  local answer
  if bucket and not inGracePeriod then
    local hash, field = nameKey(bucket, HASH), KEY_FIELD .. key
    local read = try('HMGET', hash, field, EXTENDED_FIELD)
    local record = not read.err and read[1]
    -- it holds the key, and it is not revoked; its process is the caller, and the time to live of the hash was set a
    -- short time ago
    if record and sub(record, BODY_AT, BODY_AT + #id) == id .. ' ' and sub(record, -#ending) == ending
      and not match(record, IS_REVOKED) and read[2] and now - read[2] < EXTENSION_INTERVAL and #ttl <= SHORT_TTL_DIGITS then
      local status, expires, token, createdAt, missedAt, enteredCount = unpackHead(HEAD, record)
      if expires > nowMs and expires <= nowMs + ttl then
        local reply
        if expires - nowMs <= 0.875 * ttl then
          expires = nowMs + ttl
          local renewed = packHead(HEAD, status, expires, token, createdAt, missedAt, enteredCount) .. sub(record, BODY_AT)
          reply = try('HSET', hash, field, renewed)
          if type(reply) == 'table' and string.find(reply.err, 'OOM', 1, true) then
            try('HDEL', hash, '') -- after a write that frees, Redis refuses nothing for lack of memory
            reply = try('HSET', hash, field, renewed)
          end
        end
        if type(reply) ~= 'table' then
          local tokens, wants = match(record, TOKENS_WANTS, BODY_AT)
          local state = wants == WANTS_RECALL and status == ORDINARY_AWAITED and 'r ' or 'h '
          answer = state .. formatInt(token) .. ' ' .. tokens .. ' ' .. expires - nowMs .. ' ' .. nowMsText
        end
      end
    end
  end
  answers[index - 3] = answer or ''
  if not answer then
    deferred = deferred or {}
    deferred[#deferred + 1] = index
  end
end
if not deferred then return answers end

--- include lib/records.lua
--- include lib/codec.lua
--- include lib/push.lua
--- include lib/work.lua
--- include lib/claims.lua
--- include lib/queue.lua
--- include lib/tokens.lua
--- include lib/answers.lua
--- include lib/admission.lua
--- include lib/renewal.lua

work.mustSucceed = true
local requests = {}
for _, index in ipairs(deferred) do
  requests[index] = parseRequest(ARGV[index])
  work.answeredHere[requests[index].id] = true
end
for _, index in ipairs(deferred) do
  local request = requests[index]
  local existing = findClaim(request)
  if existing and inGracePeriod and not existing.ended and existing.state ~= REVOKED and existing.expires <= nowMs then
    removeClaim(existing)
    existing = nil
  end
  if existing then
    answers[index - 3] = renewClaim(existing, match(ARGV[index], '\n(%d+)$'))
  else
    removeUnknown(request)
    answers[index - 3] = inGracePeriod and 'b ' .. graceEndsAt or encodeNone()
  end
end
finish()
for _, index in ipairs(deferred) do answers[index - 3] = finalAnswer(answers[index - 3], requests[index].id) end
return answers
