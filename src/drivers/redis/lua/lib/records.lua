--[[ records.lua — the formats of requests, of records and of entries in a queue. Other files know them only by the
     names that are given here.
     needs    nothing
     defines  joinEntry, joinGrant, joinRecall

     A request names a claim:
           one key       <bucket><key> \n <id> <ttl> <permits> <limit>
           several keys  <locks as JSON: bucket, key, permits, limit of each> \n <id> <ttl> 0 0
     and, if it makes one, goes on: <space><tokens> <floor> <waits><wants> \n <label>. From the id on it is kept as it
     came: the body of the record.

     The form of a key says where the record of its holder is, and whether claims wait. It is how the field `k:<key>`
     begins (names.lua):
           form     when                                   the field            the holder's record   admitted entries
           free     no claim                               none
           lone     one claim with one key is admitted,    T0, and its record   in this field         none
                    none waits
           awaited  the same, and claims wait              T1, and its record   in this field         none
           full     all other cases                        F                    in `c:<id>`           in their set
     Lone and awaited together are called thin. The waiting entries are in a set of their own; each of their records is
     in `c:<id>`, and begins with C0.

     What changes the form, on the common and the contended path, and on the general path, where saveForm writes it:
           free to lone       a claim (free_key.lua)                  addAdmitted
           lone to free       its release (free_key.lua)              removeAdmitted
           lone to awaited    the first claim waits (waitBehind)      enqueue
           awaited to lone    the last one leaves (leaveQueue), or    removeWaiting, or writeGrant
                              is granted (handOn)
           thin to full       -                                       makeFull: a claim with several keys is admitted, or
                                                                      a second one
           full to thin       -                                       makeThin: one with one key is left

     A record is HEAD, then: body \n JSON of the locks, if there are several \n arrivals in the queues entered, if
     there are several \n inbox of its process. The label is the only part that may contain anything.
     A tombstone is "x <its end (ms)> <ttl> <end reason>".
     An entry is "<bucket><id>:<permits>:<limit>:<ttl>", and ":r" if its claim wants to be recalled: so the admission
     rule and the recall need no records.
     The totals of the admitted entries are members of their set, with the negative of the total as score, so they come
     before all entries: "used" (the sum of permits), "count", "recalling" (how many end with ":r"), and "time", when a
     lease was written last (ms).
     A push is "<id> <token> <tokens> <remaining ttl> <state> <bucket><first key>" for a grant, "<id> recalled
     <bucket><first key>" for a recall, and "<id>" if its process shall ask. decodePush() of reply-codec.ts reads them. A
     process that has released the claim releases it again under this bucket and key. ]]
local ALL_PERMITS <const> = 1073741824 -- a claim with all permits: no other claim fits beside it
local EXCLUSIVE <const> = '1073741824' -- the same as text
-- waits
local DOES_NOT_WAIT <const> = '0'
-- wants: what its process is to be told about the claims behind it, besides nothing ("0")
local WANTS_RECALL <const> = '1' -- that another claim waits
local WANTS_SUCCESSORS <const> = '2' -- with the grant, which of its own claims come next

-- states of a claim
local ORDINARY <const> = 'o'
local DETACHED <const> = 'd'
local REVOKED <const> = 'r'

-- how a record, or the field of a key, begins
local FULL <const> = 'F'
local LONE <const> = 'T0'
local AWAITED <const> = 'T1'
local OWN <const> = 'C0' -- a record in a field of its own
local FORM <const> = '^(..)'
local IS_THIN <const> = '^T'
local IS_LONE <const> = '^' .. LONE

-- the forms with a state
local ORDINARY_LONE <const> = LONE .. ORDINARY
local ORDINARY_AWAITED <const> = AWAITED .. ORDINARY
local ORDINARY_OWN <const> = OWN .. ORDINARY
local IS_ORDINARY_LONE <const> = '^' .. ORDINARY_LONE
local IS_ORDINARY_AWAITED <const> = '^' .. ORDINARY_AWAITED
local IS_ORDINARY_THIN <const> = '^T.' .. ORDINARY
local IS_ORDINARY_OWN <const> = '^' .. ORDINARY_OWN
local IS_REVOKED <const> = '^..' .. REVOKED
local STATE_AT <const> = 3

-- form and state; end of the lease, token (0: waiting), when it was created, when its process was last unreachable (0:
-- never), number of queues entered
local HEAD <const> = '>c3ddddB'
local BODY_AT <const> = 37 -- what follows the head
local ONE_KEY <const> = '\n\n\n' -- between body and inbox if the claim has one key
local ONE_KEY_INBOX <const> = ONE_KEY .. '([^\n]*)$'

-- the fields with which a body begins: id, ttl, permits, limit, tokens, floor, waits, wants
local FIELDS <const> = '(%w+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d)(%d)\n'
local BODY <const> = '^' .. FIELDS
-- some of them
local TOKENS_WANTS <const> = '^%w+ %d+ %d+ %d+ (%d+) %d+ %d(%d)\n'
-- id, ttl, wants of an exclusive holder
local EXCLUSIVE_HOLDER <const> = '^(%w+) (%d+) ' .. EXCLUSIVE .. ' %d+ %d+ %d+ %d(%d)\n'
-- id, ttl, floor of an exclusive claim that waits and asks for successors
local SUCCESSOR <const> = '^(%w+) (%d+) ' .. EXCLUSIVE .. ' ' .. EXCLUSIVE .. ' %d+ (%d+) 1' .. WANTS_SUCCESSORS .. '\n'
-- body, its fields; locks, arrivals, inbox: all that follows the head
local AFTER_HEAD <const> = '^(' .. FIELDS .. '.*)\n([^\n]*)\n([^\n]*)\n([^\n]*)$'
local UP_TO_TOKENS <const> = '^(%w+ %d+ %d+ %d+) %d+'

-- bucket and key, or the locks; body; id, ttl, permits, limit
local REQUEST <const> = '^([^\n]*)\n((%w+) (%d+) (%d+) (%d+).*)$'
local ID <const> = '\n(%w+)'
-- bucket, key, id
local NAME <const> = '^(..)([^\n]+)\n(%w+)'
-- bucket, key, id, ttl, and no more: it makes no claim
local ONE_KEY_NAME <const> = '^(%x%x)([^\n]+)\n(%w+) (%d+) %d+ %d+$'
-- bucket, key, body; id, ttl, tokens, floor
local NEW_CLAIM <const> = '^(..)([^\n]+)\n((%w+) (%d+) %d+ %d+ (%d+) (%d+) .*)$'
-- body, ttl, permits, limit, floor, waits, wants
local NEW_WAITER <const> = '\n(%w+ (%d+) (%d+) (%d+) %d+ (%d+) (%d)(%d)\n.*)$'
local REQUEST_AT <const> = 2 -- in an item of turn.lua

-- bucket and id of its claim, permits, limit, ttl, RECALL_MARK or ""
local ENTRY <const> = '^(..)(%w+):(%d+):(%d+):(%d+)(.*)$'
local ENTRY_OWNER <const> = '^(..)(%w+)' -- bucket, id
local EXCLUSIVE_ENTRY <const> = '^(..)(%w+):' .. EXCLUSIVE .. ':' -- bucket, id
local SUCCESSOR_ENTRY <const> = EXCLUSIVE_ENTRY .. EXCLUSIVE .. ':(%d+)$' -- bucket, id, ttl
local RECALL_MARK <const> = ':r'
local TOTALS <const> = 4 -- their number
local WRITTEN_AT <const> = 'time' -- one of them

-- its end, ttl, reason
local TOMBSTONE <const> = '^x (%d+) (%d+) (.*)$'
local GRANTED_TOMBSTONE <const> = 'x 0 0 granted'

-- states of a granted claim in a push
local HELD <const> = 'h' -- and the ids of its successors, each after a comma
local RECALLED <const> = 'r' -- another claim waits already

local function joinEntry(bucket, id, permits, limit, ttl, wantsRecall)
  return bucket .. id .. ':' .. permits .. ':' .. limit .. ':' .. ttl .. (wantsRecall and RECALL_MARK or '')
end

local function joinGrant(id, token, tokens, lease, state, bucketAndKey)
  return id .. ' ' .. token .. ' ' .. tokens .. ' ' .. lease .. ' ' .. state .. ' ' .. bucketAndKey
end

local function joinRecall(id, bucketAndKey)
  return id .. ' recalled ' .. bucketAndKey
end
