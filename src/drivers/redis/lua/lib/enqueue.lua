--[[ enqueue.lua — adds waiting claims to a queue. ]]
--- Appends an entry to the waiting ones and returns its arrival.
local function enqueue(queue, entry, ttl)
  if isEmpty(queue) then addToIndex(queue.bucket, queue.key, ttl) end
  local lastArrival = readFirstWaiting(queue) and call('ZRANGE', queue.waiting, -1, -1, 'WITHSCORES')[2]
  local arrival = nextArrival(lastArrival or 0)
  call('ZADD', queue.waiting, arrival, entry)
  extendTtl(queue.waiting, ttl + KEY_TTL_MARGIN)
  queue.firstWaiting = queue.firstWaiting or entry
  return arrival
end
