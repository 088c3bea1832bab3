--[[ free_key.lua — the common path of turn.lua: claims a free key, and releases a lock that no claim waits for.
     needs    prelude.lua, names.lua, grace.lua
     defines  unpackHead, packHead, answers, deferred, found, issued, hasWritten, weededBucket

     Invariants
     - It decides only what needs no other record than that of the key, and writes it with one command.
     - A dead holder is left to the general path: others may wait, and its process may ask how its claim ended.
     - It is one text, without functions: to define one costs as much as a command, in every call. ]]
--- constants prelude.lua
--- constants records.lua
-- positions in the reply of what is read for a claim: the field of its key, the numbers of its bucket, and its own
-- field; for a release only the first
local OF_KEY <const> = 1
local LAST_ISSUED <const> = 2
local EXTENDED_AT <const> = 3
local OF_CLAIM <const> = 4

local unpackHead, packHead = struct.unpack, struct.pack
local answers = {} -- of the items in their order; '': not yet
local deferred, deferredKeys -- the items that are left to the other paths, and their keys; nil: none
local found = {} -- by index of ARGV: what was read for a deferred item
local issued = {} -- by bucket: the last number that this call has issued
local hasWritten = false
local weededBucket -- a bucket in which stale fields are to be looked for; nil: none
for index = 4, #ARGV do
  local item, answer, bucket, key, id = ARGV[index], nil, nil, nil, nil
  local kind = sub(item, 1, 1)
  if kind == 'C' then
    local body, ttl, tokens, floor
    bucket, key, body, id, ttl, tokens, floor = match(item, NEW_CLAIM, REQUEST_AT)
    if not deferred or not deferredKeys[key] and not deferredKeys[''] then
      local hash = nameKey(bucket, HASH)
      local read = try('HMGET', hash, KEY_FIELD .. key, LAST_FIELD, EXTENDED_FIELD, CLAIM_FIELD .. id)
      -- Restates the admission rule: the key is free. And the claim is new, and the time to live of the hash was set a
      -- short time ago
      if not read.err and not read[OF_KEY] and not read[OF_CLAIM] and read[EXTENDED_AT] and now - read[EXTENDED_AT] < EXTENSION_INTERVAL
        and #ttl <= SHORT_TTL_DIGITS and not inGracePeriod then
        -- Restates the token rule
        local token = math.max(nowMicros, floor, (read[LAST_ISSUED] or 0) + 1, lastBeforeLoss + 1)
        local highest = token + tokens - 1
        -- Restates the floor rule: the general path decides about a floor that is further ahead
        if floor - nowMicros <= DAY * 1000 and highest <= tokenCeiling - MIN_LEAD then
          local tokenText = formatInt(token)
          local record = packHead(HEAD, ORDINARY_LONE, nowMs + ttl, token, nowMs, 0, 1) .. body .. ONE_KEY .. inbox
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
      if type(record) == 'string' and match(record, IS_ORDINARY_LONE) and sub(record, BODY_AT, BODY_AT + #id) == id .. ' ' then
        local _, expires = unpackHead(HEAD, record)
        if expires > nowMs and try('HDEL', hash, field) == 1 then answer, hasWritten = '1', true end
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
