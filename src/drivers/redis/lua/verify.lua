--[[ verify.lua — notes the layout of this prefix, and tries every command that the other scripts use. So no script fails
     half-way because of a missing permission. One round trip, when a driver opens.
     KEYS  1 routes the call
     ARGV  layout version of the driver, its inbox, the key that keeps the layout of this prefix (it never expires, so that no
           other layout shares the prefix), the prefix of keys to try the commands on
     Returns the layout as text (that of the driver, if there was none), and the first refused command with its error ("" if
           none). A refusal for lack of memory does not count: a holder must be able to connect and release its lock. ]]
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
