/* claim.sql — makes a claim, or finds it by its id, and answers whether it is held. One round trip.
   Parameters  id, key, the key's bucket, permits, limit, ttl in ms, tokens, floor, wait, label, inbox
   Returns     "h <token> <tokens> <remaining ms> <store ms>" | "w <remaining ms> <recheck ms> <store ms>" | "n [end reason]" |
               "f": the floor is more than a day ahead of the clock; then a line for each grant to another claim of the inbox
   Cost        O(admitted + expired claims of the key). A refusal writes nothing */
create or replace function {claim}(
  p_id text, p_key text, p_bucket int, p_permits int, p_limit int, p_ttl bigint, p_tokens int, p_floor bigint, p_wait boolean,
  p_label text, p_inbox text
) returns text language plpgsql {plans} as $body$
declare
  v_now bigint;
  v_expires bigint;
  v_token bigint := 0;
  v_reason text;
  f record;
  e record;
  w record;
begin
  if not p_wait then
    -- a refusal changes nothing, so it needs no lock
    f := {read_front}(p_key, {read_clock}());
    if not f.is_walk_due and (f.blocked_at is not null or f.used + p_permits > p_limit)
      and not exists (select from {claims} where id = p_id)
    then
      return 'n';
    end if;
  end if;
  v_now := {lock_buckets}(array[p_bucket]);
  v_expires := v_now + p_ttl * 1000;
  select * into e from {restart_lease}(p_id, v_now, p_inbox, '{}');
  if e.answer is not null then
    return pg_catalog.array_to_string(e.answer || e.pushes, E'\n');
  end if;
  if p_floor > v_now + 86400000000 then
    return 'f';
  end if;
  select reason into v_reason from {tombstones} where id = p_id and expires > v_now;
  if found then
    return 'n ' || v_reason;
  end if;
  w := {walk}(p_key, p_bucket, v_now, p_inbox, '{}');
  if w.blocked_at is null and w.used + p_permits <= p_limit then
    update {buckets} set last_token = greatest(last_token + 1, p_floor, v_now) + p_tokens - 1
      where bucket = p_bucket returning last_token - p_tokens + 1 into strict v_token;
  elsif not p_wait then
    return pg_catalog.array_to_string(array['n'] || w.pushes, E'\n');
  end if;
  insert into {claims} values (
    p_id, p_key, (select coalesce(max(arrival), 0) + 1 from {claims} where key = p_key), p_bucket, p_permits, p_limit, 'o',
    p_ttl, v_expires, v_token, p_tokens, p_floor, p_inbox, p_wait, p_label, v_now, case when v_token > 0 then v_now end
  );
  return pg_catalog.array_to_string({encode_answer}(v_token, p_tokens, v_expires, w.next_expiry, v_now) || w.pushes, E'\n');
end $body$;
