/* purge-all.sql — deletes the expired claims of keys that are not used any more, and the expired tombstones; run by open().
   A claim that waits behind an expired one keeps it: removing it grants the next, which the verbs do together.
   Parameters: now, now; now
   Cost: O(claims), an index probe each; O(expired tombstones). */
delete from {claims}
where expires <= ? and not exists (select 1 from {claims} others where others.key = {claims}.key and others.expires > ?)
--- next
delete from {tombstones} where expires <= ?
