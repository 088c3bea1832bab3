/* sweep.sql — walks the queue of one other claim, if its lease has ended: without it, rows of processes that died would stay if their
   keys are never used again. Each new claim looks at the next one in order of id; ids are random, so every row is met in time.
   Parameters  the id of the new claim, when a grace period ends (0: none is running), the caller's inbox, and pushes that the caller has collected
   Returns     pushes: those, and the grants of the walk
   Cost        one index probe, mostly. It waits for no lock: the caller has locked its own bucket already, and another order of
               locks could deadlock */
create or replace function {sweep}(p_id text, p_grace_ends bigint, p_inbox text, inout pushes text[]) language plpgsql as $body$
declare
  c record;
  v_now bigint;
begin
  select key, bucket, expires into c from {claims} where id > p_id order by id limit 1;
  if c.expires > {read_clock}() or not found then
    return;
  end if;
  perform 1 from {buckets} where bucket = c.bucket for no key update skip locked;
  if found then
    v_now := {read_clock}();
    pushes := ({walk}(c.key, c.bucket, v_now, p_grace_ends, p_inbox, pushes)).pushes;
  end if;
end $body$;
