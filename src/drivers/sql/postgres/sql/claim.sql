/* claim.sql — makes a claim, or finds it by its id, and answers whether it is held. One round trip.
   Parameters  id, key, the key's bucket, permits, limit, ttl in ms, tokens, floor, wait, label, inbox; the longest ttl in ms
               (0: guardDataLoss is off); recall: see schema.sql
   Returns     "h <token> <tokens> <remaining ms> <store ms>" | "w <remaining ms> <recheck ms> <store ms>" | "n [end reason]" |
               "f": the floor is more than a day ahead of the clock | "p <end in ms> <store ms>": not granted because of a grace
               period, in which "h" and "w" have its end as another field; then a line for each grant to another claim of the inbox, and for each recall of one
   Cost        two statements if the key has no claims, else that of walk.sql. A refusal without the lock writes nothing

   Invariants of the two statements for a key without claims
   - The update takes the place of lock_buckets: it locks the bucket's row, and the clock is read after it. What else lock_buckets does is
     done before it.
   - Without the bucket's row there is no token, and without a token no insert.
   - The insert is a later statement, so it sees everything that the lock's last owner has committed. */
create or replace function {claim}(
  p_id text, p_key text, p_bucket int, p_permits int, p_limit int, p_ttl bigint, p_tokens int, p_floor bigint, p_wait boolean,
  p_label text, p_inbox text, p_max_ttl bigint, p_recall int default 0
) returns text language plpgsql {settings} as $body$
declare
  v_now bigint;
  v_token bigint;
  v_first bigint;
  v_pushes text[] := '{}';
  front record;
begin
  -- as another key this one would be free
  if pg_catalog.pg_client_encoding() <> 'UTF8' then
    raise exception 'client_encoding is not UTF8' using errcode = 'HF001';
  end if;
  if not p_wait then
    -- a refusal changes nothing, so it needs no lock. Restates the admission rule
    front := {read_front}(p_key, p_bucket, {read_clock}());
    if not front.is_walk_due and (front.used + p_permits > p_limit or front.blocked_at is not null and p_max_ttl = 0)
      and (p_max_ttl = 0 or {read_grace}(p_max_ttl, {read_clock}()) = 0) and not exists (select from {claims} where id = p_id)
    then
      return 'n';
    end if;
  end if;
  if p_max_ttl = 0 and pg_catalog.current_setting('transaction_isolation') = 'read committed' and p_floor <= {read_clock}() then
    if pg_catalog.current_setting('synchronous_commit') not in ('on', 'remote_apply') then
      perform pg_catalog.set_config('synchronous_commit', 'on', true);
    end if;
    -- Restates the token rule; and the admission rule: below, a row is inserted only if the key has none
    update {buckets} set highest_token = greatest(highest_token + 1, p_floor, {read_clock}()) + p_tokens - 1
      where bucket = p_bucket and (used is null or key <> p_key)
      returning highest_token - p_tokens + 1, {read_clock}(), case when key = p_key then first_arrival else -9223372036854775808 end
      into v_token, v_now, v_first;
    insert into {claims} select
      p_id, p_key, greatest(v_now, v_first), p_bucket, p_permits, p_limit, 'o', p_ttl, v_now + p_ttl * 1000, v_token, p_tokens, p_floor, p_inbox, p_wait,
      p_label, v_now, v_now, p_recall
    where v_token > 0 and not exists (select from {claims} where key = p_key and arrival >= v_first)
      and not exists (select from {tombstones} where id = p_id and expires > v_now);
    if found then
      -- ids are random
      if substr(p_id, 8, 1) < '4' then
        update {buckets} set key = p_key, first_arrival = greatest(v_now, v_first), used = null
          where bucket = p_bucket and (used is null or next_expiry <= v_now);
        v_pushes := {sweep}(0, p_inbox, v_pushes);
        perform {purge_tombstones}(v_now);
      end if;
      return pg_catalog.array_to_string(('h ' || v_token || ' ' || p_tokens || ' ' || p_ttl || ' ' || v_now / 1000) || v_pushes, E'\n');
    end if;
  end if;
  -- the token that was taken above stays unused: the walk may grant others before this claim
  v_token := 0;
  -- a block of its own: setting its variables would cost as much as the two statements above
  declare
    v_expires bigint;
    v_grace_ends bigint := 0;
    v_next_expiry bigint;
    v_is_known boolean;
    v_is_admitted boolean := true;
    v_arrival bigint;
    v_reason text;
    restarted record;
    w record;
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
  end;
end $body$;
