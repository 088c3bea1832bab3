/* renew.sql — restarts the leases of claims, held and waiting alike, and answers for each. One round trip.
   Parameters  ids, separated by commas, sorted by bucket and key; the caller's inbox; the longest ttl in ms (0:
               guardDataLoss is off)
   Returns     a line for each claim, as claim.sql, or "b <end in ms>": unknown, or expired, in a grace
               period: if it was held, the caller may restore it; or "r ..." instead of "h ...": held, and recalled,
               since another claim waits; then a line for each grant to another claim of the inbox, and for each recall
               of one
   Cost        O(claims x (admitted + expired claims)). Claims with more than seven eighths of their leases left, whose
               answers are the same as before, are read only: without locks and writes */
create or replace function {renew}(p_ids text, p_inbox text, p_max_ttl bigint) returns text language plpgsql {settings} as $body$
declare
  v_ids text[] := pg_catalog.string_to_array(p_ids, ',');
  v_answers text[] := '{}';
  v_pushes text[] := '{}';
  v_due int[] := '{}';
  v_buckets int[] := '{}';
  v_now bigint := {read_clock}();
  v_grace_ends bigint := 0;
  v_index int;
  v_answer text;
  c record;
  front record;
  restarted record;
begin
  if p_max_ttl > 0 then
    v_grace_ends := {read_grace}(p_max_ttl, v_now);
  end if;
  for v_index in 1 .. pg_catalog.cardinality(v_ids) loop
    v_answer := null;
    select key, arrival, bucket, state, ttl, expires, token, token_count, inbox, created, recall into c from {claims} where id = v_ids[v_index];
    if not found then
      select reason into v_answer from {tombstones} where id = v_ids[v_index] and expires > v_now;
      v_answer := case when found then 'n ' || v_answer when v_grace_ends > 0 then 'b ' || (v_grace_ends + 999) / 1000 else 'n' end;
    elsif (c.expires - v_now) * 8 > c.ttl * 7000 and c.expires <= v_now + c.ttl * 1000 and c.inbox = p_inbox and c.state <> 'r' then
      if c.token > 0 then
        v_answer := {encode_answer}(c.token, c.token_count, c.expires, null, v_grace_ends, v_now);
        if c.recall > 0 and c.state = 'o' then
          v_answer := {mark_recalled}(v_answer, c.key);
        end if;
      else
        front := {read_front}(c.key, c.bucket, v_now);
        if not front.is_walk_due and front.blocked_at <= c.arrival then
          -- a process without pushes is here too often
          if front.blocked_at = c.arrival and front.is_recallable and pg_catalog.starts_with(p_inbox, 'hf_') then
            v_pushes := {recall_holders}(c.key, p_inbox, v_pushes);
            front.next_expiry := least(front.next_expiry, {recheck_at}(c.created, v_now));
          end if;
          v_answer := {encode_answer}(0, 0, c.expires, front.next_expiry, v_grace_ends, v_now);
        end if;
      end if;
    end if;
    -- a loss of data is noted under the locks of the buckets
    if v_grace_ends is null then
      v_answer := null;
    end if;
    v_answers := v_answers || v_answer;
    if v_answer is null then
      v_due := v_due || v_index;
      -- null: it is unknown
      if c.bucket is not null and c.bucket <> all(v_buckets) then
        v_buckets := v_buckets || c.bucket;
      end if;
    end if;
  end loop;
  if v_due <> '{}' then
    v_now := {lock_buckets}(v_buckets);
    if p_max_ttl > 0 then
      -- locks the table for read_grace
      perform 1 from {claims} limit 1;
      v_grace_ends := coalesce({read_grace}(p_max_ttl, v_now), {start_grace}(p_max_ttl, false));
    end if;
    foreach v_index in array v_due loop
      if v_grace_ends > 0 then
        -- the last renewals may be lost: the holder may still restore it
        delete from {claims} where id = v_ids[v_index] and expires <= v_now and state = 'o';
      end if;
      select * into restarted from {restart_lease}(v_ids[v_index], v_now, v_grace_ends, p_inbox, v_pushes);
      v_answers[v_index] := coalesce(
        restarted.answer,
        'n ' || (select reason from {tombstones} where id = v_ids[v_index] and expires > v_now),
        case when v_grace_ends > 0 then 'b ' || (v_grace_ends + 999) / 1000 else 'n' end
      );
      v_pushes := restarted.pushes;
    end loop;
    perform {purge_tombstones}(v_now);
  end if;
  return pg_catalog.array_to_string(v_answers || v_pushes, E'\n');
end $body$;
