/* clock.sql — the database's time, now and not at the start of the transaction.
   Returns  microseconds since 1970 */
create or replace function {clock}() returns bigint language sql volatile as $$
  select (extract(epoch from pg_catalog.clock_timestamp()) * 1000000)::bigint
$$;
