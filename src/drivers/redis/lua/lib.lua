--[[ lib.lua — the queues of keys: admission, waiting and grants. Every script that changes a queue includes it. It
     restates lock-table/admission.ts (an entry is admitted if its permits fit beside those admitted before it) and
     lock-table/token-issuer.ts (token = max(last + 1, floor, clock)); the oracle of the conformance suite compares them.
     In the code a queue is a `line`, its entry a `place`, and a lock spec a `hold`.

     ARGV  1 prefix of all names ("hf:1:"), 2 inbox of the caller, 3 the key of the run record ("": guardDataLoss is off),
           4 with it the longest ttl (ms)
     Names; `b` is the bucket of a key (two hex digits, the hash tag that spreads keys over 256 buckets):
       <root>{b}:a:<key>  sorted set: admitted entries by the end of their lease (ms)
       <root>{b}:w:<key>  sorted set: waiting entries by arrival (microseconds)
       <root>{b}:c:<id>   the record of a claim, in the bucket of its first key
       <root>{b}:n        the highest token granted in the bucket; kept for two days after its last grant
       <root>{b}:b        the run record: replication id, end of the grace period, and token bounds (lib/grace.lua)
       <root>{b}:i        sorted set by name, the index: keys with entries, and key .. "\0" .. bucket .. id of claims over
                          several keys
     An entry is "<b><id>:<permits>:<limit>:<ttl>", so the admission rule needs no records.
     A record is packed; only lib/records.lua packs and unpacks it. Its fields: end of lease (ms), token (0: waiting),
       number of queues entered, when its process was last unreachable (ms; 0: never), ttl, tokens, floor, number of locks,
       state ("o"rdinary, "d"etached, "r"evoked), inbox; and then what only lists need: time of the claim (ms), waits,
       arrivals in the queues entered (separated by commas), locks as JSON (only if there are several), label. The record of
       an ended claim is a tombstone: "x <end reason>".

     Invariants
     - A script reads TIME once. No client's clock counts, and all writes of a script use that one time.
     - Whatever Redis may refuse comes before the first write, since Redis does not roll back. After one write it refuses
       nothing more, not even for lack of memory. So a script that must succeed begins with a write that frees memory.
     - A claim with all permits should be alone among the admitted entries of its queue, but no script relies on that: when
       it leaves, the queue is read again.
     - A claim enters a queue only after it was admitted in the queue of its previous key. So queues are settled in
       ascending order only.
     - Loops end: a script reads at most `looks` waiting entries.
     - Every key has a time to live, except the run record. ]]
--- include lib/prelude.lua
--- include lib/grace.lua
--- include lib/records.lua
--- include lib/arguments.lua
--- include lib/queues.lua
--- include lib/entries.lua
--- include lib/enqueue.lua
--- include lib/tokens.lua
--- include lib/admission.lua
