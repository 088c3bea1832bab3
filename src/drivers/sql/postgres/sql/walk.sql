/* walk.sql — walks a key's queue in order of arrival: removes expired claims and grants those that are admitted. Needs
   the lock of the key's bucket.
   Parameters  key, its bucket, now, the permits of held claims that the caller has removed,
               when a grace period ends (0: none is running), the caller's inbox, and pushes that the caller has
               collected
   Returns     pushes: those and the grants to claims of the caller's inbox, as "<id> <token> <tokens> <remaining ms>",
               with " r" at the end if the claim asks to be recalled, and others wait already
               grant_count: how many claims it granted
               used: permits of the admitted claims
               blocked_at: arrival of the first claim that does not fit, null if all are admitted
               waits_from: all admitted claims arrived before, null if there are none
               next_expiry: no lease of those it looked at ends before, null if there are none
               is_recallable: an admitted claim may have to be recalled by a push
               is_counted: the bucket's row has the numbers of this key
               bucket_row: where that row is now: older versions of it may be many
   Cost        O(claims that are granted, and expired ones), and one NOTIFY for each grant to another inbox that is a
               channel ("hf_..."). O(held claims) once in each of their leases, and always while the bucket's row has
               the numbers of another key

   Invariants
   - The permits that are held of a key never exceed what each of its claims allowed when it was admitted: only this
     function admits waiting claims, each beside the sum of all before it, under the bucket's lock.
   - Held claims are in front of all that wait, so their sum is enough, and those that wait are found by waits_from.
   - What is in the bucket's row is changed with each change of a held claim, in the same transaction, but for leases
     that are renewed: they end later. The sum counts for no longer than next_expiry, since the holder of the lease that
     ends then may be gone.
   - In a grace period it grants nothing: holders that are not in the tables may exist.
   - The first claim that does not fit ends the walk: all behind it wait, so small claims cannot starve a large one.
   - A token is higher than all tokens granted before in the bucket, also when the clock has stepped back. */
create or replace function {walk}(
  p_key text, p_bucket int, p_now bigint, p_freed bigint, p_grace_ends bigint, p_inbox text, inout pushes text[],
  out grant_count int, out used bigint, out blocked_at bigint, out waits_from bigint, out next_expiry bigint, out is_recallable boolean,
  out is_counted boolean, out bucket_row tid
) language plpgsql as $body$
#variable_conflict use_variable
declare
  b record;
  c record;
  v_from bigint := -9223372036854775808;
  v_first bigint;
  v_held_until bigint;
  v_ends bigint;
  v_token bigint;
  v_highest_token bigint;
  v_push text;
  -- those in the bucket's row (schema.sql): 'own': of this key; 'other': of another key; 'stale': they no longer count;
  -- 'none'
  v_numbers text;
begin
  select ctid, * into strict b from {buckets} where bucket = p_bucket;
  bucket_row := b.ctid;
  v_highest_token := b.highest_token;
  -- after a loss of data the rows may be gone
  v_numbers := case
    when b.used is null then 'none'
    when p_grace_ends > 0 or p_now < b.counted or p_now >= b.next_expiry then 'stale'
    when b.key = p_key then 'own'
    else 'other' end;
  if v_numbers = 'own' then
    used := b.used - p_freed;
    v_from := b.waits_from;
    v_first := b.first_arrival;
    waits_from := b.waits_from;
    v_held_until := b.next_expiry;
    is_recallable := b.is_recallable;
  elsif b.key = p_key then
    v_from := b.first_arrival;
    waits_from := v_from;
  end if;
  grant_count := 0;
  used := coalesce(used, 0);
  is_recallable := coalesce(is_recallable, false);
  for c in
    select id, arrival, permits, permit_limit, state, ttl, expires, token, token_count, floor, inbox, recall
      from {claims} where key = p_key and arrival >= v_from order by arrival
  loop
    v_ends := least(c.expires, p_now + c.ttl * 1000);
    if v_ends <= p_now then
      delete from {claims} where id = c.id;
      -- after a loss of data the last renewals may be missing: the holder may still restore its claim
      if p_grace_ends = 0 or c.state <> 'o' then
        perform {add_tombstone}(c.id, case c.state when 'r' then 'revoked' else 'expired' end, c.ttl, p_now);
      end if;
      continue;
    end if;
    -- the clock has stepped back: the lease must not last longer for that
    if v_ends < c.expires then
      update {claims} set expires = v_ends where id = c.id;
    end if;
    v_first := coalesce(v_first, c.arrival);
    if c.token = 0 then
      -- Restates the admission rule
      if used + c.permits > c.permit_limit or p_grace_ends > 0 then
        blocked_at := c.arrival;
        waits_from := c.arrival;
        next_expiry := v_ends;
        exit;
      end if;
      -- Restates the token rule
      v_token := greatest(v_highest_token + 1, c.floor, p_now);
      v_highest_token := v_token + c.token_count - 1;
      update {claims} set token = v_token, granted = p_now where id = c.id;
      grant_count := grant_count + 1;
      v_push := c.id || ' ' || v_token || ' ' || c.token_count || ' ' || (v_ends - p_now) / 1000;
      -- behind an exclusive claim everything waits
      if c.recall > 0 and c.permits >= c.permit_limit and exists (select from {claims} where key = p_key and arrival > c.arrival) then
        v_push := v_push || ' r';
      end if;
      if c.inbox = p_inbox then
        pushes := pushes || v_push;
      elsif pg_catalog.starts_with(c.inbox, 'hf_') then
        perform pg_catalog.pg_notify(c.inbox, v_push);
      end if;
    end if;
    used := used + c.permits;
    waits_from := c.arrival + 1;
    v_held_until := least(v_held_until, v_ends);
    is_recallable := is_recallable or c.recall = {recall_by_push} and c.state = 'o';
  end loop;
  next_expiry := least(next_expiry, v_held_until);
  if v_numbers = 'other' then
    -- they stay
    if grant_count > 0 then
      update {buckets} set highest_token = v_highest_token where ctid = b.ctid returning ctid into strict bucket_row;
    end if;
  elsif v_numbers = 'stale' or v_numbers = 'none' and used > 0
    or v_numbers = 'own' and (p_freed > 0 or grant_count > 0 or waits_from > b.waits_from)
  then
    update {buckets} set highest_token = v_highest_token, key = p_key,
      first_arrival = case when used > 0 then v_first else waits_from end, waits_from = waits_from,
      used = nullif(used, 0), next_expiry = v_held_until,
      counted = case v_numbers when 'own' then b.counted else p_now end, is_recallable = is_recallable
      where ctid = b.ctid returning ctid into strict bucket_row;
    v_numbers := case when used > 0 then 'own' else 'none' end;
  end if;
  is_counted := v_numbers = 'own';
end $body$;
