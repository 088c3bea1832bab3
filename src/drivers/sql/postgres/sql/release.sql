/* release.sql — removes claims, waiting or held, and grants to those that are admitted now. One round trip.
   Parameters  three lists of the same length, separated by commas, sorted by bucket and key: ids, ttls in ms, and "1" if a
               `claim` call of it may still arrive, else "0"; the distinct buckets in ascending order; the caller's inbox; the longest
               ttl in ms (0: guardDataLoss is off)
   Returns     a line with "1" for each claim that was there, else "0"; then a line for each grant to a claim of the inbox
   Cost        O(claims x (admitted + expired claims)), and one NOTIFY for each grant to another inbox. A release that
               grants nothing does not wait for the disk: if a crash of the server undoes it, the lease ends it */
create or replace function {release}(p_ids text, p_ttls text, p_in_flight text, p_buckets text, p_inbox text, p_max_ttl bigint)
returns text language plpgsql {settings} as $body$
declare
  v_ids text[] := pg_catalog.string_to_array(p_ids, ',');
  v_ttls bigint[] := pg_catalog.string_to_array(p_ttls, ',')::bigint[];
  v_in_flight boolean[] := pg_catalog.string_to_array(p_in_flight, ',')::boolean[];
  v_now bigint := {lock_buckets}(pg_catalog.string_to_array(p_buckets, ',')::int[]);
  v_grace_ends bigint := 0;
  v_flags text := '';
  v_pushes text[] := '{}';
  v_keys text[] := '{}';
  v_key_buckets int[] := '{}';
  v_must_sync boolean := false;
  v_was_live boolean;
  v_setting text;
  c record;
  w record;
begin
  for v_index in 1 .. pg_catalog.cardinality(v_ids) loop
    delete from {claims} as claim where id = v_ids[v_index]
      returning key, bucket, state, expires, exists (select from {claims} where key = claim.key and id <> claim.id) as has_others into c;
    v_was_live := found and c.expires > v_now;
    v_flags := v_flags || case when v_was_live and c.state <> 'r' then '1' else '0' end;
    if c.has_others and (v_keys = '{}' or v_keys[pg_catalog.cardinality(v_keys)] <> c.key) then
      v_keys := v_keys || c.key;
      v_key_buckets := v_key_buckets || c.bucket;
    end if;
    if v_in_flight[v_index] or v_was_live and c.state <> 'o' then
      perform {add_tombstone}(v_ids[v_index], case when v_was_live and c.state = 'r' then 'revoked' else 'released' end, v_ttls[v_index], v_now);
      v_must_sync := true;
    end if;
  end loop;
  if p_max_ttl > 0 and v_keys <> '{}' then
    v_grace_ends := coalesce({read_grace}(p_max_ttl, v_now), {start_grace}(p_max_ttl, false));
  end if;
  for v_index in 1 .. pg_catalog.cardinality(v_keys) loop
    w := {walk}(v_keys[v_index], v_key_buckets[v_index], v_now, v_grace_ends, p_inbox, v_pushes);
    v_pushes := w.pushes;
    v_must_sync := v_must_sync or w.grant_count > 0;
  end loop;
  if v_must_sync then
    perform {purge_tombstones}(v_now);
  else
    v_setting := pg_catalog.set_config('synchronous_commit', 'off', true);
  end if;
  return pg_catalog.array_to_string(v_flags || v_pushes, E'\n');
end $body$;
