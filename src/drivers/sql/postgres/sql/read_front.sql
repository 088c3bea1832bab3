/* read_front.sql — reads the front of a key's queue without a lock.
   Parameters  key, now
   Returns     is_walk_due: a lease at the front has ended, or a claim that is admitted there is not granted yet
               used: permits of the held claims
               blocked_at: arrival of the first waiting claim, null if none waits
               next_expiry: when the first lease of those it looked at ends
               is_recallable: a held claim is to be recalled by a push
   Cost        O(held claims), writes nothing */
create or replace function {read_front}(
  p_key text, p_now bigint, out is_walk_due boolean, out used bigint, out blocked_at bigint, out next_expiry bigint,
  out is_recallable boolean
) language plpgsql as $body$
declare
  c record;
begin
  is_walk_due := false;
  used := 0;
  is_recallable := false;
  for c in select arrival, permits, permit_limit, state, ttl, expires, token, recall from {claims} where key = p_key order by arrival loop
    -- a lease longer than the ttl: the clock has stepped back
    is_walk_due := c.expires <= p_now or c.expires > p_now + c.ttl * 1000 or c.token = 0 and used + c.permits <= c.permit_limit;
    exit when is_walk_due;
    next_expiry := least(next_expiry, c.expires);
    if c.token = 0 then
      blocked_at := c.arrival;
      exit;
    end if;
    used := used + c.permits;
    is_recallable := is_recallable or c.recall > 1 and c.state = 'o';
  end loop;
end $body$;
