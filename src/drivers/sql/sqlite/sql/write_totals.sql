/* write_totals.sql — notes what is in use of a key.
   Parameters: key, used, first end of a lease, now
   Cost: one row. */
insert into {totals} (key, used, first_expires, written) values (?, ?, ?, ?)
on conflict (key) do update set used = excluded.used, first_expires = excluded.first_expires, written = excluded.written
