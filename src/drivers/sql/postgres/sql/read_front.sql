/* read_front.sql — reads the front of a key's queue without a lock.
   Parameters  key, its bucket, now
   Returns     is_walk_due: a lease at the front may have ended, or a claim that is admitted there is not granted yet
               used: permits of the held claims
               blocked_at: arrival of the first waiting claim, null if none waits
               next_expiry: no lease of those it looked at ends before
               is_recallable: a held claim may have to be recalled by a push
   Cost        a few rows; O(held claims) while the bucket's row does not have the numbers of this key. Writes
               nothing */
create or replace function {read_front}(
  p_key text, p_bucket int, p_now bigint, out is_walk_due boolean, out used bigint, out blocked_at bigint, out next_expiry bigint,
  out is_recallable boolean
) language plpgsql as $body$
declare
  b record;
  c record;
begin
  select * into b from {buckets} where bucket = p_bucket and key = p_key;
  is_walk_due := b.used is not null and (p_now < b.counted or p_now >= b.next_expiry);
  if is_walk_due then
    return;
  end if;
  if b.used is not null then
    used := b.used;
    next_expiry := b.next_expiry;
    is_recallable := b.is_recallable;
    b.first_arrival := b.waits_from;
  end if;
  used := coalesce(used, 0);
  is_recallable := coalesce(is_recallable, false);
  for c in
    select arrival, permits, permit_limit, state, ttl, expires, token, recall
      from {claims} where key = p_key and arrival >= coalesce(b.first_arrival, -9223372036854775808) order by arrival
  loop
    -- Restates the admission rule. A lease longer than the ttl: the clock has stepped back
    is_walk_due := c.expires <= p_now or c.expires > p_now + c.ttl * 1000 or c.token = 0 and used + c.permits <= c.permit_limit;
    exit when is_walk_due;
    next_expiry := least(next_expiry, c.expires);
    if c.token = 0 then
      blocked_at := c.arrival;
      exit;
    end if;
    used := used + c.permits;
    is_recallable := is_recallable or c.recall = {recall_by_push} and c.state = 'o';
  end loop;
end $body$;
