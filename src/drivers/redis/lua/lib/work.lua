--[[ work.lua — the unit of work of an execution: what it has read, and what it writes at its end.
     needs    nothing
     defines  hasFailed, scanBudget, work, startOver

     A call is one execution. If turn.lua fails in it, it executes each item again by itself: then each of these has a
     unit of work of its own, and nothing is left of the one that failed. What holds for the whole call is not a part of
     it: these two variables, the inboxes found unreachable (push.lua), and what the other paths of turn.lua have done.
     ]]
-- an execution in this call has failed: it may have changed sorted sets, and not written the forms
local hasFailed = false
local scanBudget = 2000 -- so many waiting entries are looked at in this call, however often it executes an item

local function newWork()
  return {
    -- claims.lua
    claims = {}, -- by bucket and id; false: there is none
    buckets = {}, -- their numbers
    readFields = {}, -- by hash and field: what the common path has read already
    pending = {}, -- by hash: fields to set (text) or to delete (false)
    mustSucceed = false, -- whether Redis must not refuse its writes for lack of memory
    hasWritten = false, -- whether this call has written: from then on Redis refuses nothing for lack of memory
    -- queue.lua
    queues = {}, -- by key
    loadedQueues = {}, -- the same in the order of loading
    touchedQueues = {}, -- those that claims have left
    staleSets = {}, -- queues that are not in full form any more
    -- admission.lua
    answeredHere = {}, -- by id: the call answers for these claims, so they need no push
    grantedHere = {}, -- by id: those of them that were granted after their answers were computed
    recalls = {}, -- by id: holders to recall when everything is written
  }
end

local work = newWork()

local function startOver()
  work, hasFailed = newWork(), true
end
