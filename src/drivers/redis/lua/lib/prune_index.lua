--[[ prune_index.lua — keys whose places ran out unseen are still in the index: a few of it are looked at. ]]
for _, member in ipairs(call('ZRANDMEMBER', shared(claim.bucket, 'i'), 8)) do
  local name, owner, id = match(member, '^(%Z+)%z(..)(%w+)$')
  local left = id and call('EXISTS', named(owner, 'c', id))
    or call('EXISTS', named(claim.bucket, 'a', member), named(claim.bucket, 'w', member))
  if left == 0 then call('ZREM', shared(claim.bucket, 'i'), member) end
end
