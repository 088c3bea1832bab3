/* purge_tombstones.sql — deletes expired tombstones. Calls that write one, renewals, and one new claim in 16 call it, last: a call that has
   skipped the locked ones waits for nothing more. So those of a burst go although no other burst follows.
   Parameters  now
   Cost        at most 1,000 rows, a few milliseconds; one index probe if there are none */
create or replace function {purge_tombstones}(p_now bigint) returns void language plpgsql as $body$
begin
  delete from {tombstones} where id in (
    select id from {tombstones} where expires <= p_now order by expires limit 1000 for update skip locked
  );
end $body$;
