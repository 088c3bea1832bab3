/* restore.sql — puts claims back that were held when data was lost, with their tokens (option guardDataLoss). One round
   trip.
   Parameters  claims: a JSON array of objects with id, key, bucket, permits, limit, ttl, token, tokens, floor, wait,
               label, recall; the caller's inbox; the longest ttl in ms
   Returns     a line for each claim, as claim.sql
   Cost        O(claims x admitted claims)

   The caller knows that it held them, and that their leases had not ended: if no grace period is running, that proves a
   loss, and one begins. A claim that waits here is restored, too: its grant may be what was lost.

   Invariants
   - Beside no claim that conflicts with it (order_holders.sql).
   - The bucket's last token is never below the token of a claim that is held. */
create or replace function {restore}(p_claims text, p_inbox text, p_max_ttl bigint) returns text language plpgsql {settings} as $body$
declare
  v_now bigint;
  v_grace_ends bigint;
  v_answer text;
  v_answers text[] := '{}';
  v_known_token bigint;
  v_arrival bigint;
  v_pushes text[] := '{}';
  r record;
begin
  if pg_catalog.pg_client_encoding() <> 'UTF8' then
    raise exception 'client_encoding is not UTF8' using errcode = 'HF001';
  end if;
  v_now := {lock_buckets}(array(select distinct bucket from pg_catalog.json_to_recordset(p_claims::json) as t (bucket int)));
  -- locks the table for read_grace
  perform 1 from {claims} limit 1;
  v_grace_ends := {read_grace}(p_max_ttl, v_now);
  if v_grace_ends is null or v_grace_ends = 0 then
    v_grace_ends := {start_grace}(p_max_ttl, true);
  end if;
  for r in
    select * from pg_catalog.json_to_recordset(p_claims::json) as t (id text, key text, bucket int, permits int, "limit" int,
      ttl bigint, token bigint, tokens int, floor bigint, wait boolean, label text, recall int)
  loop
    v_answer := 'n ' || (select reason from {tombstones} where id = r.id and expires > v_now);
    select token into v_known_token from {claims} where id = r.id;
    if v_answer is null and v_known_token > 0 then
      v_answer := ({restart_lease}(r.id, v_now, v_grace_ends, p_inbox, v_pushes)).answer;
    -- Restates the floor rule
    elsif v_answer is null and (r.token <= v_now + 86400000000
      or r.token <= (select highest_token + 1 from {buckets} where bucket = r.bucket)) then
      delete from {claims} where id = r.id;
      select coalesce(min(arrival), 2) - 1 into v_arrival from {claims} where key = r.key;
      insert into {claims} values (
        r.id, r.key, v_arrival, r.bucket, r.permits, r.limit, 'o', r.ttl, v_now + r.ttl * 1000, r.token, r.tokens, r.floor, p_inbox,
        r.wait, r.label, v_now, v_now, coalesce(r.recall, 0)
      );
      -- its row is in front of all others, and not in the numbers of the key
      update {buckets} set highest_token = greatest(highest_token, r.token + r.tokens - 1), key = null, used = null where bucket = r.bucket;
      perform {order_holders}(r.key, v_now);
      select {encode_answer}(token, token_count, expires, null, v_grace_ends, v_now) into v_answer from {claims} where id = r.id;
    end if;
    v_answers := v_answers || coalesce(v_answer, 'n');
  end loop;
  return pg_catalog.array_to_string(v_answers, E'\n');
end $body$;
