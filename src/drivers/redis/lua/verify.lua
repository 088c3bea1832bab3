--[[ verify.lua — notes the layout of this prefix, and tries every command that the other scripts use. So no script fails
     half-way because of a missing permission. One round trip, when a driver opens.
     KEYS  1 routes the call
     ARGV  layout version of the driver, its inbox, the key that keeps the layout of this prefix (it never expires, so
           that no other layout shares the prefix), the prefix of keys to try the commands on
     Returns the layout as text (that of the driver, if there was none), and the first refused command with its error
           ("" if none). A refusal for lack of memory does not count: a holder must be able to connect and release its
           lock. ]]
local refusal = ''
local function tryCommand(...)
  local reply = redis.pcall(...)
  local errorText = type(reply) == 'table' and reply.err
  if errorText and not string.find(errorText, 'OOM') and refusal == '' then refusal = (...) .. ': ' .. errorText end
  return not errorText and reply
end

local setKey, hashKey, plainKey = ARGV[4] .. 's', ARGV[4] .. 'h', ARGV[4] .. 't'
tryCommand('TIME')
tryCommand('DEL', setKey, hashKey, plainKey)
tryCommand('HSET', hashKey, 'a', 1)
tryCommand('HGET', hashKey, 'a')
tryCommand('HMGET', hashKey, 'a')
tryCommand('HRANDFIELD', hashKey, 1, 'WITHVALUES')
tryCommand('HSCAN', hashKey, '0')
tryCommand('HDEL', hashKey, 'a')
tryCommand('ZADD', setKey, 0, 'a')
tryCommand('ZSCORE', setKey, 'a')
tryCommand('ZMSCORE', setKey, 'a')
tryCommand('ZCARD', setKey)
tryCommand('ZRANGE', setKey, 0, -1)
tryCommand('ZREM', setKey, 'a')
tryCommand('SET', plainKey, 1, 'PX', 1000)
tryCommand('GET', plainKey)
tryCommand('PTTL', plainKey)
tryCommand('PEXPIRE', plainKey, 1000)
tryCommand('EXISTS', plainKey)
tryCommand('DEL', setKey, hashKey, plainKey)
tryCommand(string.find(ARGV[2], '{', 1, true) and 'SPUBLISH' or 'PUBLISH', ARGV[2], '')
local layout = tryCommand('GET', ARGV[3])
if not layout and refusal == '' then tryCommand('SET', ARGV[3], ARGV[1]) end
return { layout or ARGV[1], refusal }
