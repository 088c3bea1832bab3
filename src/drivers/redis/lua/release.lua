--[[ release.lua — removes claims, waiting or held, grants to those that are admitted now, and publishes the grants to
     their inboxes. One round trip.
     KEYS  1 routes the call
     ARGV  root, inbox, run record, longest ttl, number of claims, then for each: "1" if a `claim` call of it may still
           arrive, else "0"; the claim
     Returns a string with "1" for each claim that was there, else "0"; then "\n" and a push for each granted claim with the
           caller's own inbox
     Cost  O(claims x (admitted + expired entries)), and one PUBLISH for each other grant. The first write frees memory, so
           the script succeeds when memory is full. ]]
--- include lib/prelude.lua
--- include lib/grace.lua
--- include lib/records.lua

-- the fast path: one held claim with one key. It sets up nothing that it does not need
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
  left = call('EXISTS', admitted, waiting, waiting) -- waiting entries count twice
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
    -- it may have been held before the loss of data; nothing was granted since. The tombstone stops a late claim call
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
