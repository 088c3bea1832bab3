/* write_bucket.sql — notes the highest token granted in a bucket (I2).
   Parameters: token, bucket
   Cost: one row. */
update {buckets} set last_token = ? where bucket = ?
