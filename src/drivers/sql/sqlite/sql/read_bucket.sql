/* read_bucket.sql — the highest token of a bucket, read under the lock.
   Parameters: bucket
   Cost: one row. */
select last_token from {buckets} where bucket = ?
