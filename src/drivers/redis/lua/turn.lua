--[[ turn.lua — the claims and releases of one turn of the event loop, releases first. One round trip.
     KEYS  1 any name in the bucket: routes the call
     ARGV  the three of lib/prelude.lua, then the items: a letter, and a request (lib/records.lua)
           C  makes the claim, or finds it by its id, and answers whether it is held
           R  releases it
           U  releases it while a `claim` call of it may still arrive: a tombstone keeps that one out
           G  releases a claim that the caller got a push about and does not have: <bucket><first key> \n <id>
           An "M" before the letter says that the request has several keys
     Returns lines: an answer for each item, then a push for each claim that was granted or recalled and has the caller's
           own inbox. Answers
           of claims
             h <token> <tokens> <remaining ttl> <store ms>   held
             r <the same>                                    held; another claim waits, and it wants to be recalled
             w <remaining ttl> <recheck> <store ms>          waiting
             n [end reason]                                  not there, or refused
             p <end of grace period (ms)> <store ms>         not granted because of a grace period
             f                                               the floor is refused (docs/design/rules.md)
             In a grace period h, r and w have another field, its end (ms)
           of releases: 1 if the claim was there, else 0
           of both: e <error>, if Redis refused a command of this item
     Cost  on the common path (a free key, a holder without waiters) two commands for each item; on the contended path
           (lib/contended.lua) six for a hand-off, up to nine with successors, and about five for all the claims for one
           key that enter or leave its queue together; else O(admitted + expired entries) for each queue, and one
           PUBLISH for each grant to another process

     Three paths, each for what the one before has left: lib/free_key.lua for a free key and its release,
     lib/contended.lua for what is handed on and queued behind one exclusive holder, lib/general.lua for everything
     else.

     Invariants
     - Items of one key are executed in their order: once one is deferred, those that follow are, too.
     - A refused command fails its item, never the call. ]]
--- include lib/prelude.lua
--- include lib/grace.lua
--- include lib/free_key.lua
if not deferred and not weededBucket then return table.concat(answers, '\n') end

--- include lib/records.lua
--- include lib/push.lua
ownPushes = {}
local entered = {} -- by id: the items whose claims the contended path has put in a queue

-- Each of the other paths is a function: what a script defines within one costs half as much, and only a script that
-- gets there has room for it
local function executeContended()
--- include lib/contended.lua
end
if deferred and not inGracePeriod then executeContended() end

--- Answers, then pushes.
local function joinReply()
  for _, message in ipairs(ownPushes) do answers[#answers + 1] = message end
  return table.concat(answers, '\n')
end

if not deferred and not weededBucket then return joinReply() end

local function executeRest()
--- include lib/general.lua
end
return executeRest()
