--[[ names.lua — the names of keys, and of the fields of their hash. In TypeScript: key-names.ts.
     needs    nothing
     defines  nameKey

     `b` is the bucket of a key: two hex digits, the hash tag that spreads keys over 256 buckets.
       <prefix>{b}:h        hash, everything that has no order. Its fields:
           k:<key>          the form of a key, and in thin form the record of its holder (records.lua); none: free
           c:<id>           the record of a claim that waits, or that holds keys in full form; or a tombstone
           m:<key>\0<b><id> a claim over several keys that has not entered this queue yet, for lists
           n                the last number issued in the bucket: the highest token or arrival
           e                when the time to live of the hash was last set (s)
       <prefix>{b}:a:<key>  sorted set, in full form only: admitted entries by the end of their lease (ms), and their
                            totals
       <prefix>{b}:w:<key>  sorted set, only while claims wait: waiting entries by arrival
       <prefix>{b}:b        the run record, whose name the caller gives: replication id, end of the grace period,
                            and token bounds (grace.lua) ]]
local namePrefix = ARGV[1] -- "holdfast:3:"

local HASH <const> = 'h'
local ADMITTED <const> = 'a:' -- and a key
local WAITING <const> = 'w:' -- and a key

local KEY_FIELD <const> = 'k:' -- and a key
local CLAIM_FIELD <const> = 'c:' -- and an id
local LISTED_FIELD <const> = 'm:' -- and a key, OWNER, bucket and id
local OWNER <const> = '\0'
local LAST_FIELD <const> = 'n'
local EXTENDED_FIELD <const> = 'e'
local FIELD <const> = '^(.:)(.*)$' -- which of the first three, and what follows
local LISTED <const> = '^(.*)%z(..)(%w+)$' -- key, bucket, id

--- `name`: HASH, or ADMITTED or WAITING with a key.
local function nameKey(bucket, name)
  return namePrefix .. '{' .. bucket .. '}:' .. name
end
