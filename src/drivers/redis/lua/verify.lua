--[[ verify.lua — notes which layout this prefix has, and tries every command the other scripts use, so that none of them can
     be refused half-way for want of a right. One trip, when a driver opens.
     KEYS  1 where to send the call
     ARGV  our layout, our inbox, the key with the layout of this prefix (it alone stays for ever, so that no other layout
           serves it beside us), the beginning of names to try the commands on
     Gives the layout as text (ours, if there was none), and what is refused ("" if nothing). A full store refuses nothing
           by that: whoever holds a lock must be able to give it back. ]]
local refused = ''
local function try(...)
  local said = redis.pcall(...)
  local text = type(said) == 'table' and said.err
  if text and not string.find(text, 'OOM') and refused == '' then refused = (...) .. ': ' .. text end
  return not text and said
end

local set, plain = ARGV[4] .. 's', ARGV[4] .. 't'
try('TIME')
try('DEL', set, plain)
try('ZADD', set, 0, 'a')
try('ZSCORE', set, 'a')
try('ZRANGE', set, 0, -1)
try('ZRANGEBYLEX', set, '-', '+')
try('ZRANDMEMBER', set, 1)
try('ZREM', set, 'a')
try('SET', plain, 1, 'PX', 1000)
try('GET', plain)
try('PTTL', plain)
try('PEXPIRE', plain, 1000)
try('EXISTS', plain)
try('DEL', set, plain)
try(string.find(ARGV[2], '{', 1, true) and 'SPUBLISH' or 'PUBLISH', ARGV[2], '')
local layout = try('GET', ARGV[3])
if not layout and refused == '' then try('SET', ARGV[3], ARGV[1]) end
return { layout or ARGV[1], refused }
