/* read_waiting.sql — the next waiting claims of a queue in order of arrival.
   Parameters: key, the arrival after which to begin, the most rows
   Cost: O(rows), however many hold the key. */
select id, key, arrival, bucket, permits, permit_limit, state, ttl, expires, token, token_count, floor, inbox
from {claims} where key = ? and token = 0 and arrival > ?
order by arrival limit ?
