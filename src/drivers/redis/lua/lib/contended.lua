--[[ contended.lua — the contended path of turn.lua: an exclusive lock is handed to the next claim in its queue, and a
     claim enters or leaves the queue behind an exclusive holder, with few commands and without the functions of the
     general path.
     needs    prelude.lua, names.lua, free_key.lua
     defines  mentioned, readWaiter

     Invariants
     - It executes an item only if the general path would give the same result: the key has one exclusive holder, in
       thin form, alive and in its ordinary state. For a release, the first waiting claim must be alive and exclusive,
       and have this key only, so that no other claim fits beside it. All other items stay deferred.
     - Items are executed in their order: once one stays deferred, all that follow do, too. Claims for one key that
       follow each other enter its queue together, and releases of waiting claims leave it together: nothing between
       them could tell the difference.
     - The order of writes is that of the general path. ]]
--- constants prelude.lua
--- constants records.lua
--- constants free_key.lua
-- by id: the claims of these items. A release neither grants to them nor recalls for them: they are released too, or
-- need no push
local mentioned = {}

--- Of a claim that waits with a record of its own, alive and in its ordinary state: the end of its lease, when it was
--- created, and when its process was last unreachable. nil: another case.
local function readWaiter(record)
  if not record or not match(record, IS_ORDINARY_OWN) then return nil end
  local _, expires, token, createdAt, missedAt = unpackHead(HEAD, record)
  if token == 0 and expires > nowMs then return expires, createdAt, missedAt end
end

--- include hand_on.lua
--- include wait_behind.lua

--- Releases the holder or waiting claims. Returns how many of these items were executed.
local function release(key, items)
  local first = items[1]
  local record = found[first.index] and found[first.index][OF_KEY]
  if not found[first.index] then record = try('HGET', key.hash, key.field) end
  if type(record) ~= 'string' or not match(record, IS_ORDINARY_AWAITED) then return 0 end
  local _, expires = unpackHead(HEAD, record)
  if expires <= nowMs then return 0 end
  if sub(record, BODY_AT, BODY_AT + #first.id) ~= first.id .. ' ' then return leaveQueue(key, record, items) end
  if not handOn(first.bucket, key, record) then return 0 end
  answers[first.index - 3] = '1'
  return 1
end

for _, item in ipairs(deferred) do mentioned[item.id or match(ARGV[item.index], ID)] = true end
local position, count = 1, 1
-- up to the first item that is another case: that one and those that follow stay deferred
while deferred[position] and count > 0 do
  local first, items = deferred[position], {}
  local kind, bucket, key = first.kind, first.bucket, first.key
  -- those that follow each other and are of the same kind and key
  for index = position, #deferred do
    local item = deferred[index]
    if item.kind ~= kind or item.key ~= key or item.bucket ~= bucket then break end
    items[#items + 1] = item
  end
  local execute = kind == 'R' and release or kind == 'C' and waitBehind
  count = execute and execute({
    bucketAndKey = bucket .. key, hash = nameKey(bucket, HASH), field = KEY_FIELD .. key, waiting = nameKey(bucket, WAITING .. key),
  }, items) or 0
  for index = position, position + count - 1 do found[deferred[index].index] = nil end
  position = position + count
end
local left = {}
for index = position, #deferred do left[#left + 1] = deferred[index] end
deferred = left[1] and left
