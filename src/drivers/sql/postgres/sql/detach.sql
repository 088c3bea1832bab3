/* detach.sql — detaches held claims: the way they end is kept as a tombstone. The process of the first claim that
   waits gets a recheck push. One round trip.
   Parameters  ids, separated by commas; the time that their leases shall have left in ms, at most their ttls count; the
               distinct buckets in ascending order
   Returns     "1" for each claim that was held, else "0" */
create or replace function {detach}(p_ids text, p_left bigint, p_buckets text) returns text language plpgsql {settings} as $body$
declare
  v_now bigint := {lock_buckets}(pg_catalog.string_to_array(p_buckets, ',')::int[]);
  v_flags text := '';
  v_id text;
  v_bucket int;
  v_key text;
begin
  foreach v_id in array pg_catalog.string_to_array(p_ids, ',') loop
    update {claims} set state = 'd', expires = v_now + least(ttl, p_left) * 1000
      where id = v_id and token > 0 and state <> 'r' and expires > v_now returning bucket, key into v_bucket, v_key;
    -- its lease may end earlier now
    if v_bucket is not null then
      update {buckets} set used = null where bucket = v_bucket and used is not null;
      perform pg_catalog.pg_notify(w.inbox, w.id)
        from (select id, inbox from {claims} where key = v_key and token = 0 order by arrival limit 1) w
        where pg_catalog.starts_with(w.inbox, 'hf_');
    end if;
    v_flags := v_flags || case when v_bucket is null then '0' else '1' end;
  end loop;
  return v_flags;
end $body$;
