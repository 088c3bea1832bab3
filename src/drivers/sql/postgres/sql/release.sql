/* release.sql — removes claims, waiting or held, and grants to those that are admitted now. One round trip.
   Parameters  three lists of the same length, separated by commas, sorted by bucket and key: ids, ttls in ms, and "1"
               if a `claim` call of it may still arrive, else "0"; the distinct buckets in ascending order; the caller's
               inbox; the longest ttl in ms (0: guardDataLoss is off)
   Returns     a line with "1" for each claim that was there, else "0"; then a line for each grant to a claim of the
               inbox
   Cost        two statements for one claim that is alone at its key, else a walk (walk.sql) of each of their keys, and
               one NOTIFY for each grant to another inbox. A release that grants nothing does not wait for the disk: if
               a crash of the server undoes it, the lease ends it

   Invariant of the two statements for one claim: they delete it only if no other claim of the key is there to be
   granted, as seen by a statement later than the one that locks the bucket's row */
create or replace function {release}(p_ids text, p_ttls text, p_in_flight text, p_buckets text, p_inbox text, p_max_ttl bigint)
returns text language plpgsql {settings} as $body$
declare
  v_setting text;
  v_was_live boolean;
  v_is_locked boolean := false;
  b record;
begin
  if p_in_flight = '0' and pg_catalog.current_setting('transaction_isolation') = 'read committed' then
    -- takes the place of lock_buckets
    select key, first_arrival, used into b from {buckets} where bucket = p_buckets::int for no key update;
    v_is_locked := found;
    if v_is_locked then
      delete from {claims} as claim where id = p_ids and state = 'o' and (b.used is null or b.key <> claim.key)
        and not exists (select from {claims} where key = claim.key and id <> claim.id
          and arrival >= case when claim.key = b.key then b.first_arrival else -9223372036854775808 end)
        returning expires > {read_clock}() into v_was_live;
      if found then
        v_setting := pg_catalog.set_config('synchronous_commit', 'off', true);
        return v_was_live::int;
      end if;
    end if;
  end if;
  -- a block of its own: setting its variables would cost as much as the two statements above
  declare
    v_ids text[] := pg_catalog.string_to_array(p_ids, ',');
    v_ttls bigint[] := pg_catalog.string_to_array(p_ttls, ',')::bigint[];
    v_in_flight boolean[] := pg_catalog.string_to_array(p_in_flight, ',')::boolean[];
    v_now bigint := case when v_is_locked then {read_clock}() else {lock_buckets}(pg_catalog.string_to_array(p_buckets, ',')::int[]) end;
    v_grace_ends bigint := 0;
    v_flags text := '';
    v_pushes text[] := '{}';
    v_keys text[] := '{}';
    v_key_buckets int[] := '{}';
    v_freed bigint[] := '{}';
    v_must_sync boolean := false;
    c record;
    w record;
  begin
    for v_index in 1 .. pg_catalog.cardinality(v_ids) loop
      delete from {claims} where id = v_ids[v_index] returning key, bucket, permits, state, expires, token into c;
      v_was_live := found and c.expires > v_now;
      v_flags := v_flags || case when v_was_live and c.state <> 'r' then '1' else '0' end;
      if found and (v_keys = '{}' or v_keys[pg_catalog.cardinality(v_keys)] <> c.key) then
        v_keys := v_keys || c.key;
        v_key_buckets := v_key_buckets || c.bucket;
        v_freed := v_freed || 0::bigint;
      end if;
      if c.token > 0 then
        v_freed[pg_catalog.cardinality(v_keys)] := v_freed[pg_catalog.cardinality(v_keys)] + c.permits;
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
      w := {walk}(v_keys[v_index], v_key_buckets[v_index], v_now, v_freed[v_index], v_grace_ends, p_inbox, v_pushes);
      v_pushes := w.pushes;
      v_must_sync := v_must_sync or w.grant_count > 0;
    end loop;
    if v_must_sync then
      if pg_catalog.current_setting('synchronous_commit') not in ('on', 'remote_apply') then
        v_setting := pg_catalog.set_config('synchronous_commit', 'on', true);
      end if;
      perform {purge_tombstones}(v_now);
    else
      v_setting := pg_catalog.set_config('synchronous_commit', 'off', true);
    end if;
    return pg_catalog.array_to_string(v_flags || v_pushes, E'\n');
  end;
end $body$;
