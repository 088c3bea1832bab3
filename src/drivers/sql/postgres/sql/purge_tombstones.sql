/* purge_tombstones.sql — deletes a few expired tombstones. Called last: a call that has skipped the locked ones waits for nothing more.
   Parameters  now
   Cost        at most 16 rows */
create or replace function {purge_tombstones}(p_now bigint) returns void language plpgsql as $body$
begin
  delete from {tombstones} where id in (
    select id from {tombstones} where expires <= p_now order by expires limit 16 for update skip locked
  );
end $body$;
