/* sweep.sql — removes rows of claims whose leases have ended, and walks their queues: without it, rows of processes
   that died would stay if their keys are never used again, or if a claim that waits for long is in front of them, where
   each walk ends. One new claim in 16 looks at a page of the table, chosen at random, so every row is met in time. An
   index would lead through all the rows that were deleted since the oldest transaction began.
   Parameters  when a grace period ends (0: none is running), the caller's inbox, and pushes that the caller has
               collected
   Returns     pushes: those, and the grants of the walk
   Cost        one page, mostly; before PostgreSQL 14 all of them. It waits for no lock: the caller has locked its own
               bucket already, and another order of locks could deadlock */
create or replace function {sweep}(p_grace_ends bigint, p_inbox text, inout pushes text[]) language plpgsql as $body$
declare
  c record;
  v_now bigint := {read_clock}();
  v_pages bigint := pg_catalog.pg_relation_size({claims_literal}::pg_catalog.regclass) / pg_catalog.current_setting('block_size')::int;
  v_page bigint := pg_catalog.floor(pg_catalog.random() * v_pages);
begin
  for c in select id, key, bucket, ttl from {claims}
    where ctid >= ('(' || v_page || ',0)')::tid and ctid < ('(' || v_page + 1 || ',0)')::tid and expires <= v_now limit 10
  loop
    perform 1 from {buckets} where bucket = c.bucket for no key update skip locked;
    continue when not found;
    v_now := {read_clock}();
    pushes := ({walk}(c.key, c.bucket, v_now, 0, p_grace_ends, p_inbox, pushes)).pushes;
    -- it waits behind the claim at which the walk has ended. It may have been renewed before the lock
    delete from {claims} where id = c.id and token = 0 and expires <= v_now;
    if found and p_grace_ends = 0 then
      perform {add_tombstone}(c.id, 'expired', c.ttl, v_now);
    end if;
  end loop;
end $body$;
