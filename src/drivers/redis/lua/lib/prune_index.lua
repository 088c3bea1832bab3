--[[ prune_index.lua — removes a few stale members of the index: keys whose entries expired without a script noticing. ]]
for _, member in ipairs(call('ZRANDMEMBER', bucketKey(claim.bucket, 'i'), 8)) do
  local key, owner, id = match(member, '^(%Z+)%z(..)(%w+)$')
  local isLive = id and call('EXISTS', keyName(owner, 'c', id))
    or call('EXISTS', keyName(claim.bucket, 'a', member), keyName(claim.bucket, 'w', member))
  if isLive == 0 then call('ZREM', bucketKey(claim.bucket, 'i'), member) end
end
