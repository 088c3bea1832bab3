--[[ lib.lua — the lines of keys: who is admitted, who waits, who is granted. Every script that changes a line
     includes it. It restates lock-table/admission.ts (a place is admitted if it fits behind those admitted before it) and
     lock-table/token-issuer.ts (token = max(last + 1, floor, clock)); the oracle of the conformance suite holds them together.

     ARGV  1 root of our names ("hf:1:"), 2 inbox of the caller, 3 the birth record to heed ("": none), 4 with it the
           longest ttl there is (ms)
     Names, `b` being the bucket of a key (two hex digits, the hash tag that spreads keys over 256 slots):
       <root>{b}:a:<key>  sorted set: admitted places by the end of their lease (ms)
       <root>{b}:w:<key>  sorted set: waiting places by arrival (microseconds)
       <root>{b}:c:<id>   one claim, in the bucket of its first key
       <root>{b}:n        the highest token granted in the bucket; kept for two days past its last grant
       <root>{b}:b        the birth record: whose reign it is, from when on it grants, and tokens (lib/grace.lua)
       <root>{b}:i        sorted set by name: keys with places, and key .. "\0" .. bucket .. id of claims over several
     A place is "<b><id>:<permits>:<limit>:<ttl>", so a line can be judged without reading its claims.
     A claim is packed, and written and read in one place, lib/records.lua: end of lease (ms), token (0: waiting), lines
       entered, when it was not heard at (ms; 0: never), ttl, tokens, floor, lines wanted, its state ("o"rdinary, "d"etached,
       "r"evoked), inbox; and then what only lists tell: placed at (ms), waits, arrivals in the lines entered (with
       commas), holds as JSON (only if there are several), label. Of one that has ended: "x <how>".

     Invariants
     - TIME is read once a script; no client's clock counts, and every script's writes bear that one time.
     - What can be refused is refused before the first write: Redis does not roll back. After one write nothing is
       refused any more (neither for want of memory), so where a verb must succeed its first write is one that frees.
     - Whoever takes all permits should be alone among the admitted of a line, but that is never taken for granted: when it
       goes, the line is looked at.
     - A claim enters a line only when it is admitted in that of its key before, so lines are settled upwards only.
     - Loops end: a script looks at no more than `looks` waiting places.
     - A key of ours always has a time to live, but for the birth record. ]]
--- include lib/prelude.lua
--- include lib/grace.lua
--- include lib/records.lua
--- include lib/arguments.lua
--- include lib/queues.lua
--- include lib/entries.lua
--- include lib/enqueue.lua
--- include lib/tokens.lua
--- include lib/admission.lua
