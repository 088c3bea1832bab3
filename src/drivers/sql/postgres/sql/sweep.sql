/* sweep.sql — removes the row of one other claim, if its lease has ended, and walks its queue: without it, rows of processes that died
   would stay if their keys are never used again, or if a claim that waits for long is in front of them, where each walk ends. Each new
   claim looks at the next one in order of id; ids are random, so every row is met in time.
   Parameters  the id of the new claim, when a grace period ends (0: none is running), the caller's inbox, and pushes that the caller has collected
   Returns     pushes: those, and the grants of the walk
   Cost        one index probe, mostly. It waits for no lock: the caller has locked its own bucket already, and another order of
               locks could deadlock */
create or replace function {sweep}(p_id text, p_grace_ends bigint, p_inbox text, inout pushes text[]) language plpgsql as $body$
declare
  c record;
  v_now bigint;
begin
  select id, key, bucket, ttl, expires into c from {claims} where id > p_id order by id limit 1;
  if c.expires > {read_clock}() or not found then
    return;
  end if;
  perform 1 from {buckets} where bucket = c.bucket for no key update skip locked;
  if found then
    v_now := {read_clock}();
    pushes := ({walk}(c.key, c.bucket, v_now, p_grace_ends, p_inbox, pushes)).pushes;
    -- it waits behind the claim at which the walk has ended. It may have been renewed before the lock
    delete from {claims} where id = c.id and token = 0 and expires <= v_now;
    if found and p_grace_ends = 0 then
      perform {add_tombstone}(c.id, 'expired', c.ttl, v_now);
    end if;
  end if;
end $body$;
