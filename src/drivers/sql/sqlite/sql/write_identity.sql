/* write_identity.sql — notes what the database is, and the grace period.
   Parameters: file, sequence, begin and end of the grace period
   Cost: one row. */
insert into {identity} (only_row, file, sequence, grace_begins, grace_ends) values (1, ?, ?, ?, ?)
on conflict (only_row) do update set file = excluded.file, sequence = excluded.sequence,
  grace_begins = excluded.grace_begins, grace_ends = excluded.grace_ends
