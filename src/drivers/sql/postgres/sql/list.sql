/* list.sql — one page of the live claims, in order of key and arrival.
   Parameters  the lowest key; the lowest key behind them; the key and the arrival after which the page starts; how many claims
   Cost        O(claims of the page + expired claims between them) */
with t as (select {read_clock}() as now)
select
  id, key, arrival::text, permits::text, permit_limit::text, ttl::text, token_count::text, floor::text, wait, label, token::text,
  (greatest(least(expires, now + ttl * 1000) - now, 0) / 1000)::text as remaining,
  (greatest(now - created, 0) / 1000)::text as age,
  -- greatest() would make 0 of null
  case when granted is null then '' else (greatest(now - granted, 0) / 1000)::text end as held
from t, {claims} as claims
where key >= $1::text and key < $2::text and (claims.key, claims.arrival) > ($3::text, $4::bigint) and expires > now
order by claims.key, claims.arrival limit $5::int
