/* read-bucket.sql — the time and the highest token of a bucket, read under the lock.
   Parameters: bucket
   Cost: one row. */
select cast(round(unixepoch('subsec') * 1000) as integer) * 1000 as now, last_token from {buckets} where bucket = ?
