--[[ revoke.lua — asks holders to go: they answer "n revoked" from now on and keep their place until they release it or
     their lease ends; with "now" they are removed at once. Their processes are told to ask. One trip.
     KEYS  1 where to send the call
     ARGV  root, inbox, birth record, longest ttl, number of targets, then for each: bucket, key, token, now ("1" or "0")
     Gives a string with "1" for each that was there, else "0"
     Work  O(admitted) a target ]]
--- include line.lua

local function holder(bucket, key, token, atOnce)
  for _, place in ipairs(call('ZRANGE', named(bucket, 'a', key), 0, -1)) do
    local parsed = parse(place)
    local claim = read(parsed.bucket, parsed.id)
    if alive(claim) and claim.token > 0 and token >= claim.token and token < claim.token + claim.tokens
      and (atOnce or not claim.revoked) then
      return claim, parsed
    end
  end
end

local done = {}
for at = 1, tonumber(take()) do
  local bucket, key, token, atOnce = take(), take(), tonumber(take()), take() == '1'
  local claim, parsed = holder(bucket, key, token, atOnce)
  done[at] = claim and '1' or '0'
  if claim and atOnce then
    local holds = claim.count > 1 and holdsOf(claim) or { { bucket, key, parsed.hold[3], parsed.hold[4] } }
    leave(claim, holds)
    bury(claim.key, 'revoked', claim.ttl)
  elseif claim then
    write('HSET', claim.key, 'r', 'revoked')
  end
  if claim then tell(claim, claim.id) end
end
settleAll()
return table.concat(done)
