--[[ queues.lua — the line of one key, and how claims enter it. ]]
local ALL = 1073741824 -- whoever takes all permits is alone: nobody fits beside it, nor it beside anybody
local lines = {}
local arrivals = -1
local kept = {} -- for how long the index of a bucket is certainly there (ms)
local asking = {} -- ids that this very call answers for: they need no push

local function lineOf(bucket, name)
  local line = lines[name]
  if not line then
    line = {
      bucket = bucket, name = name, admitted = named(bucket, 'a', name), waiting = named(bucket, 'w', name),
      -- permits in use, when the first lease ends, who waits in front (false: nobody); has somebody left it?
      used = nil, soonest = nil, front = nil, left = false,
    }
    lines[name] = line
  end
  return line
end

--- Nobody is admitted.
local function empty(line)
  line.used, line.soonest = 0, math.huge
end

local function keep(key, ms)
  if call('PTTL', key) < ms then call('PEXPIRE', key, ms) end
end

--- The index of a bucket outlives the places in its lines, whose renewals keep it, but not by days: it tells names of keys.
local function keepIndex(bucket, ttl)
  local least = math.max(2 * ttl, HOUR)
  if (kept[bucket] or 0) >= least then return end
  kept[bucket] = least
  local index = shared(bucket, 'i')
  if call('PTTL', index) < least then call('PEXPIRE', index, 2 * least) end
end

--- The key gets a place.
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

--- A number that no step of the clock can disorder within one line, as text.
local function arrive(last)
  arrivals = arrivals + 1
  return text(math.max(micros + arrivals, last + 1))
end
