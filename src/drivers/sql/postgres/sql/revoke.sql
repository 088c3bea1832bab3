/* revoke.sql — revokes a held claim: from now on it is answered "n revoked" and keeps its entry until it is released or
   its lease ends; with "now" it is removed at once. Its process gets a recheck push. One round trip.
   Parameters  key, its bucket, a token of the grant, now, the caller's inbox; the longest ttl in ms (0: guardDataLoss
               is off)
   Returns     "1" if the grant was found, else "0"; then a line for each push to the caller's inbox
   Cost        O(admitted claims of the key) */
create or replace function {revoke}(p_key text, p_bucket int, p_token bigint, p_is_immediate boolean, p_inbox text, p_max_ttl bigint)
returns text language plpgsql {settings} as $body$
declare
  v_now bigint := {lock_buckets}(array[p_bucket]);
  v_grace_ends bigint := 0;
  v_pushes text[] := '{}';
  c record;
begin
  if pg_catalog.pg_client_encoding() <> 'UTF8' then
    raise exception 'client_encoding is not UTF8' using errcode = 'HF001';
  end if;
  for c in select id, permits, state, ttl, expires, token, token_count, inbox from {claims} where key = p_key order by arrival loop
    exit when c.token = 0;
    continue when p_token < c.token or p_token >= c.token + c.token_count or c.expires <= v_now
      or c.state = 'r' and not p_is_immediate;
    if c.inbox = p_inbox then
      v_pushes := v_pushes || c.id;
    elsif pg_catalog.starts_with(c.inbox, 'hf_') then
      perform pg_catalog.pg_notify(c.inbox, c.id);
    end if;
    if p_is_immediate then
      delete from {claims} where id = c.id;
      perform {add_tombstone}(c.id, 'revoked', c.ttl, v_now);
      if p_max_ttl > 0 then
        v_grace_ends := coalesce({read_grace}(p_max_ttl, v_now), {start_grace}(p_max_ttl, false));
      end if;
      v_pushes := ({walk}(p_key, p_bucket, v_now, c.permits, v_grace_ends, p_inbox, v_pushes)).pushes;
      perform {purge_tombstones}(v_now);
    else
      update {claims} set state = 'r' where id = c.id;
    end if;
    return pg_catalog.array_to_string(array['1'] || v_pushes, E'\n');
  end loop;
  return '0';
end $body$;
