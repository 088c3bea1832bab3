/* read_queue.sql — the next claims of a queue in order of arrival.
   Parameters: key, the arrival after which to begin, the most rows
   Cost: O(rows). */
select id, key, arrival, bucket, permits, permit_limit, state, ttl, expires, token, token_count, floor, inbox
from {claims} where key = ? and arrival > ?
order by arrival limit ?
