/* walk.sql — walks a key's queue in order of arrival: removes expired claims and grants those that are admitted. Needs the
   lock of the key's bucket.
   Parameters  key, its bucket, now, when a grace period ends (0: none is running), the caller's inbox, and pushes that the
               caller has collected
   Returns     pushes: those and the grants to claims of the caller's inbox, as "<id> <token> <tokens> <remaining ms>", with " r" at the
               end if the claim asks to be recalled, and others wait already
               grant_count: how many claims it granted
               used: permits of the admitted claims
               blocked_at: arrival of the first claim that does not fit, null if all are admitted
               next_expiry: when the first lease of those it looked at ends, null if there are none
               is_recallable: an admitted claim is to be recalled by a push
   Cost        O(admitted + expired claims), and one NOTIFY for each grant to another inbox that is a channel ("hf_...")

   Invariants
   - The permits that are held of a key never exceed what each of its claims allowed when it was admitted: only this function
     admits waiting claims, each beside the sum of all before it, under the bucket's lock.
   - In a grace period it grants nothing: holders that are not in the tables may exist.
   - The first claim that does not fit ends the walk: all behind it wait, so small claims cannot starve a large one.
   - A token is higher than all tokens granted before in the bucket, also when the clock has stepped back. */
create or replace function {walk}(
  p_key text, p_bucket int, p_now bigint, p_grace_ends bigint, p_inbox text, inout pushes text[],
  out grant_count int, out used bigint, out blocked_at bigint, out next_expiry bigint, out is_recallable boolean
) language plpgsql as $body$
declare
  c record;
  v_ends bigint;
  v_token bigint;
  v_push text;
begin
  grant_count := 0;
  used := 0;
  is_recallable := false;
  for c in
    select id, arrival, permits, permit_limit, state, ttl, expires, token, token_count, floor, inbox, recall
      from {claims} where key = p_key order by arrival
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
    next_expiry := least(next_expiry, v_ends);
    if c.token = 0 then
      if used + c.permits > c.permit_limit or p_grace_ends > 0 then
        blocked_at := c.arrival;
        return;
      end if;
      update {buckets} set last_token = greatest(last_token + 1, c.floor, p_now) + c.token_count - 1
        where bucket = p_bucket returning last_token - c.token_count + 1 into strict v_token;
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
    is_recallable := is_recallable or c.recall > 1 and c.state = 'o';
  end loop;
end $body$;
