/* insert_claim.sql — puts a claim at the end of the queue of its key.
   Parameters: id, key, key, bucket, permits, limit, ttl, expires, token (0: it waits), number of tokens, floor, inbox,
   whether it waits, label, now, now if it is granted
   Cost: one row; the last arrival is the end of the index. */
insert into {claims} (
  id, key, arrival, bucket, permits, permit_limit, state, ttl, expires, token, token_count, floor, inbox, wait, label,
  created, granted
)
values (
  ?, ?, 1 + coalesce((select max(arrival) from {claims} where key = ?), 0), ?, ?, ?, 'o', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
)
