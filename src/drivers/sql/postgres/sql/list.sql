/* list.sql — one page of the live claims, in order of key and arrival.
   Parameters  the lowest key; the lowest key behind them; the key and the arrival after which the page starts; how many
               claims
   Returns     a JSON list with an object for each claim. Large numbers are text
   Cost        O(claims of the page + expired claims between them) */
create or replace function {list}(p_from text, p_to text, p_key text, p_arrival bigint, p_max int)
returns text language plpgsql {settings} as $body$
declare
  v_now bigint := {read_clock}();
begin
  if pg_catalog.pg_client_encoding() <> 'UTF8' then
    raise exception 'client_encoding is not UTF8' using errcode = 'HF001';
  end if;
  return (
    select coalesce(pg_catalog.json_agg(page), '[]') from (
      select
        id, key, arrival::text, permits::text, permit_limit::text, ttl::text, token_count::text, floor::text, wait, label, token::text,
        (greatest(least(expires, v_now + ttl * 1000) - v_now, 0) / 1000)::text as remaining,
        (greatest(v_now - created, 0) / 1000)::text as age,
        -- greatest() would make 0 of null
        case when granted is null then '' else (greatest(v_now - granted, 0) / 1000)::text end as held
      from {claims} as claims
      where key >= p_from and key < p_to and (claims.key, claims.arrival) > (p_key, p_arrival) and expires > v_now
      order by claims.key, claims.arrival limit p_max
    ) as page
  );
end $body$;
