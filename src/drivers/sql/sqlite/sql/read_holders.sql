/* read_holders.sql — the held claims of a key, in order of their tokens.
   Parameters: key
   Cost: O(claims of the key). */
select id, key, arrival, bucket, permits, permit_limit, state, ttl, expires, token, token_count, floor, inbox
from {claims} where key = ? and token > 0
order by token
