/* list_prefix.sql — live claims with keys from a first one to below a bound, in order of key and arrival.
   Parameters: now, the first key, the bound, the last key of the page before and its arrival, the most rows
   Cost: O(rows + expired rows). */
select id, key, arrival, permits, permit_limit, ttl, expires, token, token_count, floor, wait, label, created, granted
from {claims} where expires > ? and key >= ? and key < ? and (key, arrival) > (?, ?)
order by key, arrival limit ?
