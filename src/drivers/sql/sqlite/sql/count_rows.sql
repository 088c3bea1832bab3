/* count_rows.sql — how many rows there are, for diagnosis.
   Parameters: now, now
   Cost: O(rows). */
select
  (select count(*) from {claims}) as claims,
  (select count(*) from {claims} where expires <= ?) as expired_claims,
  (select count(*) from {tombstones}) as tombstones,
  (select count(*) from {tombstones} where expires <= ?) as expired_tombstones
