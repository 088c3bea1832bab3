--[[ prune_index.lua — removes a few stale members of the index: keys whose entries expired without a script noticing. ]]
for _, member in ipairs(call('ZRANDMEMBER', shared(claim.bucket, 'i'), 8)) do
  local name, owner, id = match(member, '^(%Z+)%z(..)(%w+)$')
  local left = id and call('EXISTS', named(owner, 'c', id))
    or call('EXISTS', named(claim.bucket, 'a', member), named(claim.bucket, 'w', member))
  if left == 0 then call('ZREM', shared(claim.bucket, 'i'), member) end
end
