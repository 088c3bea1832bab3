/* start_grace.sql — notes a loss of data: begins a grace period, in which nothing is granted, unless another call has
   done so.
   Parameters  the caller's longest ttl in ms; whether the caller knows of a loss that the identity row does not show
   Returns     when the grace period ends, 0 if none is running
   Cost        one row lock. Called after bucket locks only, never before one, so no two calls wait for each other

   Invariants
   - A period lasts for the longest ttl from the moment at which the loss was noticed: so long a live holder may need
     until it renews its claim and finds that it must restore it.
   - It is never made shorter; a caller with a longer ttl makes it longer. */
create or replace function {start_grace}(p_max_ttl bigint, p_is_lost boolean) returns bigint language plpgsql as $body$
declare
  i record;
  v_now bigint;
  v_begins bigint;
  v_ends bigint;
  v_started timestamptz := pg_catalog.pg_postmaster_start_time();
  v_file text := pg_catalog.pg_relation_filepath({claims_literal}::pg_catalog.regclass);
  v_is_same boolean;
begin
  insert into {identity} values (true, '-infinity', '', 0, 0, 0) on conflict (only_row) do nothing;
  select started, file, writer, xmin::text::bigint as row_writer, grace_begins, grace_ends into strict i
    from {identity} where only_row for no key update;
  v_now := {read_clock}();
  v_is_same := i.started = v_started and i.file = v_file and i.writer = i.row_writer;
  if v_is_same and not p_is_lost and i.grace_ends <= v_now then
    return 0;
  end if;
  if v_is_same and i.grace_ends > v_now and i.grace_begins <= v_now then
    v_begins := i.grace_begins;
    v_ends := greatest(i.grace_ends, v_begins + p_max_ttl * 1000);
  else
    v_begins := v_now;
    -- after a step back of the clock an earlier period has no more left than its length
    v_ends := greatest(v_now + p_max_ttl * 1000, least(i.grace_ends, v_now + i.grace_ends - i.grace_begins));
  end if;
  update {identity} set started = v_started, file = v_file, writer = pg_catalog.txid_current() % 4294967296,
    grace_begins = v_begins, grace_ends = v_ends where only_row;
  return v_ends;
end $body$;
