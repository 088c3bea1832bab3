--[[ release.lua — removes claims, waiting or held, grants who is admitted now and says so to their inboxes. One trip.
     KEYS  1 where to send the call
     ARGV  root, inbox, birth record, longest ttl, number of claims, then for each: "1" if a `claim` call of it may still come, else "0"; the claim
     Gives a string with "1" for each claim that was there, else "0"; then "\n" and a push for each claim granted whose
           inbox is the caller's own
     Work  O(claims x (admitted + run out)), and a publication for each other grant. Its first write is one that frees: it
           succeeds when memory is full. ]]
--- include lib/prelude.lua
--- include lib/grace.lua
--- include lib/records.lua

-- the most usual call: one claim that holds one key. Nothing is made that it does not need
local bucket, name = ARGV[10], ARGV[11]
local only = ARGV[5] == '1' and ARGV[6] == '0' and ARGV[9] == '1' and read(bucket, ARGV[7])
local isUsual = only and not only.ended and only.state == 'o' and only.token > 0 and only.expires > now
local there, left = {}, nil
if isUsual then
  local admitted = named(bucket, 'a', name)
  there[1] = call('ZREM', admitted, placeOf(only, { bucket, name, ARGV[12], ARGV[13] })) == 1 and '1' or '0'
  dirty = true
  call('DEL', only.key)
  local waiting = named(bucket, 'w', name)
  left = call('EXISTS', admitted, waiting, waiting) -- who waits counts twice
  if left == 0 then
    call('ZREM', shared(bucket, 'i'), name)
    return there[1]
  end
end

--- include lib/arguments.lua
--- include lib/queues.lua
--- include lib/entries.lua
--- include lib/enqueue.lua
--- include lib/tokens.lua
--- include lib/admission.lua
--- include lib/remove_unknown.lua

local function remove(unanswered, asked, holds)
  local claim = read(asked.bucket, asked.id)
  local was = '0'
  if not claim then
    sweep(asked, holds)
    -- it may have been there before the store forgot; nobody was granted since. Nor is it placed anew by a late call
    if breathing then was, unanswered = '1', true end
  elseif not claim.ended then
    local isAll = leave(claim, holds) == claim.stage
    if alive(claim) then
      if isAll and claim.state ~= 'r' then was = '1' end
      if claim.state ~= 'o' then
        bury(claim.key, claim.state == 'r' and 'revoked' or 'released', claim.ttl)
      elseif not unanswered then
        call('DEL', claim.key)
      end
    end
  end
  if unanswered then bury(asked.key, 'released', asked.ttl) end
  return was
end

if isUsual then
  local line = lineOf(bucket, name)
  leftBy(line)
  if left == 2 then empty(line) end
else
  for at = 1, tonumber(take()) do there[at] = remove(take() == '1', takeClaim()) end
end
told = {}
settleAll()
return table.concat(there) .. (told[1] and '\n' .. table.concat(told, '\n') or '')
