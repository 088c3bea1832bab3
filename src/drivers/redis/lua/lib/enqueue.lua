--[[ enqueue.lua — adds waiting claims to a queue. ]]
--- Appends an entry to the waiting ones and returns its arrival.
local function queue(line, place, ttl)
  if isIdle(line) then enlist(line.bucket, line.name, ttl) end
  local last = frontOf(line) and call('ZRANGE', line.waiting, -1, -1, 'WITHSCORES')[2]
  local arrival = arrive(last or 0)
  call('ZADD', line.waiting, arrival, place)
  keep(line.waiting, ttl + SLACK)
  line.front = line.front or place
  return arrival
end
