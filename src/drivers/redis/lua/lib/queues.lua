--[[ queues.lua — the queue of a key, and how claims enter it. ]]
local ALL = 1073741824 -- a claim with all permits: no other claim fits beside it
local lines = {}
local arrivals = -1
local kept = {} -- by bucket: the time to live that its index has at least (ms)
local asking = {} -- ids of the claims that this call answers for: they need no push

local function lineOf(bucket, name)
  local line = lines[name]
  if not line then
    line = {
      bucket = bucket, name = name, admitted = named(bucket, 'a', name), waiting = named(bucket, 'w', name),
      -- permits in use, end of the first lease, first waiting entry (false: none), whether a claim has left
      used = nil, soonest = nil, front = nil, left = false,
    }
    lines[name] = line
  end
  return line
end

--- Notes that the queue has no admitted entries.
local function empty(line)
  line.used, line.soonest = 0, math.huge
end

local function keep(key, ms)
  if call('PTTL', key) < ms then call('PEXPIRE', key, ms) end
end

--- The index of a bucket outlives the entries in its queues, and renewals extend it. It must not stay for days: it contains
--- the names of keys.
local function keepIndex(bucket, ttl)
  local least = math.max(2 * ttl, HOUR)
  if (kept[bucket] or 0) >= least then return end
  kept[bucket] = least
  local index = shared(bucket, 'i')
  if call('PTTL', index) < least then call('PEXPIRE', index, 2 * least) end
end

--- Adds a key to the index.
local function enlist(bucket, member, ttl)
  call('ZADD', shared(bucket, 'i'), '0', member)
  keepIndex(bucket, ttl)
end

local function admit(line, place, permits, expires, ttl)
  call('ZADD', line.admitted, expires .. '', place)
  if line.used == 0 then
    call('PEXPIRE', line.admitted, ttl + SLACK)
  else
    keep(line.admitted, ttl + SLACK)
  end
  line.used = line.used + permits
  line.soonest = math.min(line.soonest, expires)
end

--- The next arrival, as text: within a queue it rises even if the clock steps back.
local function arrive(last)
  arrivals = arrivals + 1
  return text(math.max(micros + arrivals, last + 1))
end
