/* read_owned.sql — the claims of an inbox, waiting and held, that are neither detached nor revoked.
   Parameters: the inbox
   Cost: O(all claims). */
select id, key, arrival, bucket, permits, permit_limit, state, ttl, expires, token, token_count, floor, inbox
from {claims} where inbox = ? and state = 'o'
