/* claim.sql — makes a claim, or finds it by its id, and answers whether it is held. One round trip.

   Case                                                What happens                                Returns
   it does not wait, and does not fit                  nothing, and without a lock                 "n"
   its key has no claims                               two statements: tokens, and its row         "h ..."
   every other one                                     claim_queued.sql

   Parameters  id, key, the key's bucket, permits, limit, ttl in ms, tokens, floor, wait, label, inbox; the longest ttl
               in ms (0: guardDataLoss is off); recall: see schema.sql
   Returns     "h <token> <tokens> <remaining ms> <store ms>" | "w <remaining ms> <recheck ms> <store ms>" | "n [end
               reason]" | "f": the floor is more than a day ahead of the clock | "p <end in ms> <store ms>": not granted
               because of a grace period, in which "h" and "w" have its end as another field; then a line for each grant
               to another claim of the inbox, and for each recall of one

   Invariants of the two statements
   - The update takes the place of lock_buckets: it locks the bucket's row, and the clock is read after it. What else
     lock_buckets does is done before it.
   - Without the bucket's row there is no token, and without a token no insert.
   - The insert is a later statement, so it sees everything that the lock's last owner has committed.
   - If the key has a claim after all, the token stays unused: claim_queued may grant others before this claim. */
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
  return {claim_queued}(
    p_id, p_key, p_bucket, p_permits, p_limit, p_ttl, p_tokens, p_floor, p_wait, p_label, p_inbox, p_max_ttl, p_recall
  );
end $body$;
