/* lock_buckets.sql — locks the rows of buckets and returns the database's time. Every function that changes or decides
   calls it first.
   Parameters  distinct numbers of buckets
   Returns     microseconds since 1970, read after the lock was granted
   Cost        one row lock for each bucket

   Invariants
   - In ascending order, so no two calls wait for each other.
   - The time is read after the lock: a call that waited must not judge leases by the time at which it began to wait.
   - Read committed: the statements after the lock see everything that the lock's last owner has committed. Under a
     snapshot of the whole transaction two calls would grant the same key.
   - What is committed survives a crash, whatever another user of the session has set: a grant or a renewal that was
     answered must not be undone. A setting of the function would end before the commit, so this one is the
     transaction's. */
create or replace function {lock_buckets}(p_buckets int[]) returns bigint language plpgsql as $body$
declare
  v_count int;
begin
  if pg_catalog.current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception 'transaction isolation is not read committed' using errcode = 'HF001';
  end if;
  if pg_catalog.current_setting('synchronous_commit') not in ('on', 'remote_apply') then
    perform pg_catalog.set_config('synchronous_commit', 'on', true);
  end if;
  perform 1 from {buckets} where bucket = any(p_buckets) order by bucket for no key update;
  get diagnostics v_count = row_count;
  -- without its row a bucket has no lock
  if v_count <> pg_catalog.cardinality(p_buckets) then
    raise exception 'bucket rows are missing' using errcode = 'HF002';
  end if;
  return {read_clock}();
end $body$;
