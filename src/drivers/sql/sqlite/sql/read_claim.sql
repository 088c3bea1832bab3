/* read_claim.sql — one claim by its id.
   Parameters: id
   Cost: one row. */
select id, key, arrival, bucket, permits, permit_limit, state, ttl, expires, token, token_count, floor, inbox
from {claims} where id = ?
