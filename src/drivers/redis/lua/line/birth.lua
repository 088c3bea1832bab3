--[[ birth.lua — has the store forgotten? With the option guardDataLoss the caller names a record that stands in the
     store for ever: which run of the server it is of, and from when on new claims may be granted. Missing (all was
     flushed, or an empty start), or of another run of the server (a restart, a replica that was promoted, which may have
     missed the last writes): from now on for the longest ttl there is, claims only line up, and those who hold place
     their claims anew (replace.lua). So nobody is granted over a live holder that the store has forgotten. The run is
     asked of the server itself each time: what a client thinks of its connection may be wrong, and the replication id
     changes without any loss. ]]
local record, longest = ARGV[3], tonumber(ARGV[4])
local opensAt = 0

if record ~= '' then
  local info = call('INFO', 'server')
  local at = string.find(info, 'run_id:', 1, true)
  local run = string.sub(info, at + 7, at + 46)
  local known = call('GET', record) or ''
  local isSame = string.sub(known, 1, 40) == run
  opensAt = isSame and tonumber(string.sub(known, 42)) or now + longest
  -- more than the longest ttl is left only if the clock has stepped back since
  if not isSame or opensAt > now + longest then
    opensAt = now + longest
    -- refused only for want of memory: then nothing stands there, and nobody is granted either
    redis.pcall('SET', record, run .. ' ' .. opensAt)
  end
end

--- Do claims only line up now?
local breathing = opensAt > now
