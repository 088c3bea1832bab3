/* purge_all.sql — deletes the expired claims that no live one of their key is behind, and the expired tombstones; run
   by open(). So those go that no walk reaches: of keys that are not used any more, and behind a claim that waits for
   long. A claim that waits behind an expired one keeps it: removing it grants the next, which the verbs do together.
   What is in use is counted again. A semicolon at the end of a line separates the three statements.
   Parameters: now, now; none; now
   Cost: O(claims), an index probe each and the expired claims behind it; O(expired tombstones). */
delete from {claims}
where expires <= ? and not exists (
  select 1 from {claims} others
  where others.key = {claims}.key and others.arrival > {claims}.arrival and others.expires > ?
);

delete from {totals};

delete from {tombstones} where expires <= ?
