/* claim_queued.sql — the part of claim.sql for every case: other claims of the key, a claim that is known, a grace
   period. Locks the bucket.

   Case                                                What happens                                Returns
   the claim is known                                  its lease is restarted (restart_lease.sql)  its answer
   it has a tombstone                                  nothing                                     "n <reason>"
   its floor is too far ahead                          nothing                                     "f"
   it fits behind the others, outside a grace period   tokens, and its row                         "h ..."
   it does not fit, and waits                          its row; holders may be recalled            "w ..."
   it does not fit, and does not wait                  nothing                                     "n"
   it would fit outside a grace period; does not wait  nothing                                     "p ..."

   Parameters  as claim.sql
   Returns     as claim.sql
   Cost        that of walk.sql */
create or replace function {claim_queued}(
  p_id text, p_key text, p_bucket int, p_permits int, p_limit int, p_ttl bigint, p_tokens int, p_floor bigint, p_wait boolean,
  p_label text, p_inbox text, p_max_ttl bigint, p_recall int
) returns text language plpgsql as $body$
declare
  v_now bigint;
  v_token bigint := 0;
  v_expires bigint;
  v_grace_ends bigint := 0;
  v_next_expiry bigint;
  v_is_known boolean;
  v_is_admitted boolean := true;
  v_arrival bigint;
  v_reason text;
  restarted record;
  w record;
  v_pushes text[] := '{}';
begin
  v_now := {lock_buckets}(array[p_bucket]);
  select exists (select from {claims} where id = p_id), (select reason from {tombstones} where id = p_id and expires > v_now)
    into v_is_known, v_reason;
  if p_max_ttl > 0 then
    v_grace_ends := coalesce({read_grace}(p_max_ttl, v_now), {start_grace}(p_max_ttl, false));
    v_is_admitted := v_grace_ends = 0;
  end if;
  if v_is_known then
    restarted := {restart_lease}(p_id, v_now, v_grace_ends, p_inbox, v_pushes);
    return pg_catalog.array_to_string(restarted.answer || restarted.pushes, E'\n');
  elsif v_reason is not null then
    return 'n ' || v_reason;
  elsif p_floor > v_now + 86400000000 then
    -- Restates the floor rule
    if p_floor > (select highest_token + 1 from {buckets} where bucket = p_bucket) then
      return 'f';
    end if;
  end if;
  w := {walk}(p_key, p_bucket, v_now, 0, v_grace_ends, p_inbox, v_pushes);
  v_pushes := w.pushes;
  -- Restates the admission rule
  v_is_admitted := v_is_admitted and w.blocked_at is null and w.used + p_permits <= p_limit;
  -- behind all others, also after the clock has stepped back
  v_arrival := greatest(v_now, w.waits_from,
    (select arrival + 1 from {claims} where key = p_key and arrival >= v_now order by arrival desc limit 1));
  v_expires := v_now + p_ttl * 1000;
  -- Restates the token rule
  if v_is_admitted and w.is_counted then
    update {buckets} set highest_token = greatest(highest_token + 1, p_floor, v_now) + p_tokens - 1, waits_from = v_arrival + 1,
      used = used + p_permits, next_expiry = least(next_expiry, v_expires), is_recallable = is_recallable or p_recall = {recall_by_push}
      where ctid = w.bucket_row returning highest_token - p_tokens + 1 into strict v_token;
  elsif v_is_admitted then
    update {buckets} set highest_token = greatest(highest_token + 1, p_floor, v_now) + p_tokens - 1
      where ctid = w.bucket_row returning highest_token - p_tokens + 1 into strict v_token;
  elsif not p_wait and v_grace_ends > 0 and w.used + p_permits <= p_limit then
    -- unknown is not busy: the holder may not have restored its claim yet
    return 'p ' || (v_grace_ends + 999) / 1000 || ' ' || v_now / 1000;
  elsif not p_wait then
    return pg_catalog.array_to_string(array['n'] || v_pushes, E'\n');
  end if;
  insert into {claims} values (
    p_id, p_key, v_arrival, p_bucket, p_permits, p_limit, 'o', p_ttl, v_expires, v_token, p_tokens, p_floor, p_inbox, p_wait,
    p_label, v_now, case when v_token > 0 then v_now end, p_recall
  );
  -- in front of all others that wait
  v_next_expiry := w.next_expiry;
  if v_token = 0 and w.blocked_at is null and w.is_recallable then
    v_pushes := {recall_holders}(p_key, p_inbox, v_pushes);
    v_next_expiry := least(v_next_expiry, {recheck_at}(v_now, v_now));
  end if;
  if substr(p_id, 8, 1) < '4' then
    -- waiting claims that gave up before are not read again
    if v_token = 0 and w.blocked_at is null and w.is_counted then
      update {buckets} set waits_from = v_arrival where ctid = w.bucket_row;
    end if;
    v_pushes := {sweep}(v_grace_ends, p_inbox, v_pushes);
    perform {purge_tombstones}(v_now);
  end if;
  return pg_catalog.array_to_string({encode_answer}(v_token, p_tokens, v_expires, v_next_expiry, v_grace_ends, v_now) || v_pushes, E'\n');
end $body$;
