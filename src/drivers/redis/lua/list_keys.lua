--[[ list_keys.lua — lists the keys with entries that begin with a prefix, from the index of each bucket. Writes nothing.
     KEYS  1 routes the call
     ARGV  prefix of names, prefix of keys, start (members after this one; "": from the first), maximum of members from
           each bucket, then buckets
     Returns the members of each bucket: keys, and key .. "\0" .. bucket .. id of claims over several keys ]]
local namePrefix, prefix, start, maxMembers = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local from = start == '' and '[' .. prefix or '(' .. start
local found = {}
for position = 5, #ARGV do
  local index = namePrefix .. '{' .. ARGV[position] .. '}:i'
  found[position - 4] = redis.call('ZRANGEBYLEX', index, from, '(' .. prefix .. '\255', 'LIMIT', 0, maxMembers)
end
return found
