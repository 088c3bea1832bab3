/* front.sql — reads the front of a key's queue without a lock.
   Parameters  key, now
   Returns     blocked_at: arrival of the first claim that does not fit, null if there is none, or if a walk is due because a lease
               has ended or a claim at the front is admitted, but not yet granted
               next_expiry: when the first lease of those it looked at ends
   Cost        O(admitted claims), writes nothing */
create or replace function {front}(p_key text, p_now bigint, out blocked_at bigint, out next_expiry bigint)
language plpgsql as $$
declare
  c record;
  v_used bigint := 0;
begin
  for c in select arrival, permits, permit_limit, ttl, expires, token from {claims} where key = p_key order by arrival loop
    if c.expires <= p_now or c.expires > p_now + c.ttl * 1000 then
      return;
    end if;
    next_expiry := least(next_expiry, c.expires);
    if c.token = 0 then
      if v_used + c.permits > c.permit_limit then
        blocked_at := c.arrival;
      end if;
      return;
    end if;
    v_used := v_used + c.permits;
  end loop;
end $$;
