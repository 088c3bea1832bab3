--[[ list_keys.lua — lists the keys with entries that begin with a prefix, from the hash of each bucket. Writes nothing.
     KEYS  1 routes the call
     ARGV  prefix of names, prefix of keys, then for each bucket: its name, and the cursor of the reply before ("0":
           start)
     Returns for each bucket its next cursor ("0": that was all) and members: keys, and key .. "\0" .. bucket .. id of
           claims over several keys. A member may come more than once
     Cost  a step of the iteration over one hash for each bucket ]]
local prefix = ARGV[2]
--- include lib/names.lua
local FIELDS_PER_STEP <const> = 128
local found = {}
for index = 3, #ARGV, 2 do
  local reply = redis.call('HSCAN', nameKey(ARGV[index], HASH), ARGV[index + 1], 'COUNT', FIELDS_PER_STEP)
  local members = { reply[1] }
  for position = 1, #reply[2], 2 do
    local kind, name = string.match(reply[2][position], FIELD)
    if (kind == KEY_FIELD or kind == LISTED_FIELD) and string.sub(name, 1, #prefix) == prefix then
      members[#members + 1] = name
    end
  end
  found[#found + 1] = members
end
return found
