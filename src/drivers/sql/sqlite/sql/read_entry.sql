/* read_entry.sql — what a claim has to know first: the time, the highest token of its bucket, how it ended if it did, whether
   it has a row, and whether its key has claims.
   Parameters: id, id, key, bucket
   Cost: four index probes. */
select
  {now} as now, last_token,
  (
    select reason from {tombstones}
    where id = ? and expires > {now}
  ) as reason,
  exists (select 1 from {claims} where id = ?) as is_known,
  exists (select 1 from {claims} where key = ?) as is_queued
from {buckets} where bucket = ?
