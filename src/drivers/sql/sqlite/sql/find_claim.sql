/* find_claim.sql — whether a key has claims.
   Parameters: key
   Cost: one index probe. */
select 1 from {claims} where key = ? limit 1
