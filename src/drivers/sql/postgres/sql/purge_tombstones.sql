/* purge_tombstones.sql — deletes expired tombstones. Calls that write one, renewals, and one new claim in 16 call it,
   last: a call that has skipped the locked ones waits for nothing more. So those of a burst go although no other burst
   follows.
   Parameters  now
   Cost        at most 1,000 rows, a few milliseconds; one index probe if there are none */
create or replace function {purge_tombstones}(p_now bigint) returns void language plpgsql as $body$
begin
  -- as an array, since the planner may execute a subquery once for each row
  delete from {tombstones} where id = any (array(
    select id from {tombstones} where expires <= p_now order by expires limit 1000 for update skip locked
  ));
end $body$;
