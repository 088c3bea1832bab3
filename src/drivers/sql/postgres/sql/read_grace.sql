/* read_grace.sql — compares the database with the one that the identity row was written in (option guardDataLoss).
   Parameters  the caller's longest ttl in ms, now
   Returns     when the grace period ends, 0 if none is running; null: data may have been lost, or the period must be
               longer, so the caller calls start_grace
   Cost        one row

   The row names the run of the server, the file of the claims table, and the transaction that wrote the row itself. So
   it does not fit after a restart, a promotion or a file-level restore (another run), after a table was dropped,
   truncated or copied to another database (another file), and after a dump was restored (another transaction has
   written the row). A caller that decides has locked its bucket and read {claims} in the same transaction: the table
   cannot be dropped or truncated between this look and the decision. */
create or replace function {read_grace}(p_max_ttl bigint, p_now bigint) returns bigint language plpgsql as $body$
declare
  i record;
begin
  select started, file, writer, xmin::text::bigint as row_writer, grace_begins, grace_ends into i
    from {identity} where only_row;
  if not found or i.started <> pg_catalog.pg_postmaster_start_time() or i.writer <> i.row_writer
    or i.file <> pg_catalog.pg_relation_filepath({claims_literal}::pg_catalog.regclass)
  then
    return null;
  end if;
  if i.grace_ends <= p_now then
    return 0;
  end if;
  -- a begin in the future: the clock has stepped back
  if i.grace_begins > p_now or i.grace_ends < i.grace_begins + p_max_ttl * 1000 then
    return null;
  end if;
  return i.grace_ends;
end $body$;
