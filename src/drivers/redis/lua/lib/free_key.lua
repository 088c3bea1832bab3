--[[ free_key.lua — the common path of turn.lua: claims a free key, and releases a lock that no claim waits for.
     needs    prelude.lua, grace.lua
     defines  unpackHead, packHead, answers (of the items in their order; '': not yet), deferred, found (by index of ARGV: what was
              read for a deferred item), issued (by bucket: the last number that this call has issued), isWritten (whether it has
              written), weededBucket (nil, or a bucket in which stale fields are to be looked for)

     Invariants
     - It decides only what needs no other record than that of the key, and writes it with one command.
     - A dead holder is left to the general path: others may wait, and its process may ask how its claim ended. ]]
--- constants prelude.lua
--- constants records.lua
local unpackHead, packHead = struct.unpack, struct.pack
local answers, deferred, found, isWritten = {}, nil, {}, false
local deferredKeys, weededBucket, issued = nil, nil, {}
for index = 4, #ARGV do
  local item, answer, bucket, key, id = ARGV[index], nil, nil, nil, nil
  local kind = sub(item, 1, 1)
  if kind == 'C' then
    local body, ttl, tokens, floor
    bucket, key, body, id, ttl, tokens, floor = match(item, NEW_CLAIM, REQUEST_AT)
    if not deferred or not deferredKeys[key] and not deferredKeys[''] then
      local hash = nameKey(bucket, HASH)
      local read = try('HMGET', hash, KEY_FIELD .. key, CLAIM_FIELD .. id, LAST_FIELD, EXTENDED_FIELD)
      -- Restates the admission rule: the key is free. And the claim is new, and the time to live of the hash was set a short time ago
      if not read.err and not read[1] and not read[2] and read[4] and now - read[4] < EXTENSION_INTERVAL
        and #ttl <= SHORT_TTL_DIGITS and not inGracePeriod then
        -- Restates the token rule
        local token = math.max(nowMicros, floor, (read[3] or 0) + 1, tokenFloor + 1)
        local highest = token + tokens - 1
        if floor - nowMicros <= DAY * 1000 and highest <= tokenCeiling - MIN_LEAD then
          local tokenText = formatInt(token)
          local record = packHead(HEAD, ORDINARY_THIN, nowMs + ttl, token, nowMs, 0, 1) .. body .. ONE_KEY .. inbox
          local last = tokens == '1' and tokenText or formatInt(highest)
          if type(try('HSET', hash, KEY_FIELD .. key, record, LAST_FIELD, last)) ~= 'table' then
            answer = 'h ' .. tokenText .. ' ' .. tokens .. ' ' .. ttl .. ' ' .. nowMsText
          end
          issued[bucket] = highest
          if sub(id, -1) == 'a' then weededBucket = bucket end -- one of 32
        end
      end
      if not answer and not read.err then found[index] = read end
    end
  elseif kind == 'R' then
    bucket, key, id = match(item, NAME, REQUEST_AT)
    if not deferred or not deferredKeys[key] and not deferredKeys[''] then
      local hash, field = nameKey(bucket, HASH), KEY_FIELD .. key
      local record = try('HGET', hash, field)
      -- it holds the key, no claim waits, and its state is ordinary
      if type(record) == 'string' and match(record, IS_ORDINARY_THIN) and sub(record, BODY_AT, BODY_AT + #id) == id .. ' ' then
        local _, expires = unpackHead(HEAD, record)
        if expires > nowMs and try('HDEL', hash, field) == 1 then answer, isWritten = '1', true end
      end
      if not answer and type(record) ~= 'table' then found[index] = { record } end
    end
  elseif kind == 'U' then
    bucket, key, id = match(item, NAME, REQUEST_AT)
  end
  answers[index - 3] = answer or ''
  if not answer then
    deferred, deferredKeys = deferred or {}, deferredKeys or {}
    -- "" stands for all keys: a claim with several of them
    deferred[#deferred + 1] = { index = index, kind = kind, bucket = bucket, key = key or '', id = id }
    deferredKeys[key or ''] = true
  end
end
