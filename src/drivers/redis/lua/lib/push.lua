--[[ push.lua — messages to the processes of claims.
     needs    prelude.lua
     defines  ownPushes, isUnreachable, push ]]
local ownPushes -- for pushes to the caller's own process, returned in the reply; nil: the reply has no room for them
local unreachableInboxes = {} -- by inbox, as far as this script has found out; it cannot change while the script runs

--- In a Cluster a fail-over may leave a subscription on a replica, where it receives everything and is not counted. So
--- an empty ping counts the subscribers first, and no grant is published that is not counted. Elsewhere the count comes
--- with the message itself.
local function isUnreachable(receiver)
  if ownPushes and receiver == inbox then return false end
  if unreachableInboxes[receiver] == nil and string.find(receiver, '{', 1, true) then
    unreachableInboxes[receiver] = try('SPUBLISH', receiver, '') == 0
  end
  return unreachableInboxes[receiver]
end

--- Pushes a message to an inbox and returns whether its process is reachable. An error of Redis (no permission to
--- publish) does not count as unreachable. Messages are not replicated: a replica may have a left-over subscription.
local function push(receiver, message)
  if ownPushes and receiver == inbox then
    ownPushes[#ownPushes + 1] = message
    return true
  end
  if isUnreachable(receiver) then return false end
  if string.find(receiver, '{', 1, true) then
    try('SPUBLISH', receiver, message)
    return true
  end
  redis.set_repl(redis.REPL_NONE)
  unreachableInboxes[receiver] = try('PUBLISH', receiver, message) == 0
  redis.set_repl(redis.REPL_ALL)
  return not unreachableInboxes[receiver]
end
