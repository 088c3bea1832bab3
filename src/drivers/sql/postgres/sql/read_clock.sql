/* read_clock.sql — the database's time, now and not at the start of the transaction.
   Returns  microseconds since 1970 */
create or replace function {read_clock}() returns bigint language sql volatile as $body$
  select (extract(epoch from pg_catalog.clock_timestamp()) operator(pg_catalog.*) 1000000)::bigint
$body$;
