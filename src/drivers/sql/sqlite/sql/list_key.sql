/* list_key.sql — live claims of one queue, in order of arrival.
   Parameters: now, key, the arrival after which to begin, the most rows
   Cost: O(rows + expired rows). */
select id, key, arrival, permits, permit_limit, ttl, expires, token, token_count, floor, wait, label, created, granted
from {claims} where expires > ? and key = ? and arrival > ?
order by arrival limit ?
