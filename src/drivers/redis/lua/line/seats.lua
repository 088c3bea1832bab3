--[[ seats.lua — the line of one key, and how claims enter it. ]]
local ALL = 1073741824 -- whoever takes all permits is alone: nobody fits beside it, nor it beside anybody
local lines = {}
local arrivals = -1
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

--- The key gets a place.
local function enlist(bucket, member, ttl)
  local index = shared(bucket, 'i')
  call('ZADD', index, '0', member)
  keep(index, math.max(ttl, DAY) * 2)
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
