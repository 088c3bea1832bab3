--[[ release.lua — removes claims, waiting or held, grants who is admitted now and says so to their inboxes. One trip.
     KEYS  1 where to send the call
     ARGV  root, inbox, birth record, longest ttl, number of claims, then for each: "1" if a `claim` call of it may still come, else "0"; the claim
     Gives a string with "1" for each claim that was there, else "0"
     Work  O(claims x (admitted + run out)), and a publication for each grant. Its first write is one that frees: it
           succeeds when memory is full. ]]

-- The most usual call: one claim with one hold, alone on its key. As in claim.lua it does what the rest would do.
if ARGV[5] == '1' and ARGV[6] == '0' and ARGV[9] == '1' and ARGV[3] == '' then
  local call, bucket, name = redis.call, ARGV[10], ARGV[11]
  local prefix = ARGV[1] .. '{' .. bucket .. '}:'
  local claim, admitted = prefix .. 'c:' .. ARGV[7], prefix .. 'a:' .. name
  local f = call('HMGET', claim, 'e', 't', 'k', 'r', 'd', 'x')
  if f[1] and f[3] ~= '0' and not (f[4] or f[5] or f[6]) and call('EXISTS', prefix .. 'w:' .. name) == 0
    and call('ZCARD', admitted) == 1 then
    local time = call('TIME')
    local left = f[1] - math.floor((time[1] * 1000000 + time[2]) / 1000)
    local place = bucket .. ARGV[7] .. ':' .. ARGV[12] .. ':' .. ARGV[13] .. ':' .. f[2]
    if left > 0 and left <= tonumber(f[2]) and call('ZREM', admitted, place) == 1 then
      call('DEL', claim)
      call('ZREM', prefix .. 'i', name)
      return '1'
    end
  end
end

--- include line.lua

local there = {}
for at = 1, tonumber(take()) do
  local unanswered = take() == '1'
  local asked, holds = takeClaim()
  local claim = read(asked.bucket, asked.id)
  there[at] = '0'
  if claim and not claim.ended then
    local wasAlive = alive(claim) and not claim.revoked
    if leave(claim, holds) == claim.stage and wasAlive then there[at] = '1' end
  elseif not claim then
    sweep(asked, holds)
    -- it may have been there before the store forgot; nobody was granted since. Nor is it placed anew by a late call
    if breathing then there[at], unanswered = '1', true end
  end
  if unanswered then
    bury(named(asked.bucket, 'c', asked.id), 'released', asked.ttl)
  elseif claim and not claim.ended then
    if alive(claim) and (claim.revoked or claim.detached) then
      bury(claim.key, claim.revoked or 'released', claim.ttl)
    elseif alive(claim) then
      write('DEL', claim.key)
    end
  end
end
settleAll()
return table.concat(there)
