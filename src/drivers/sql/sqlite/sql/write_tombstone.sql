/* write_tombstone.sql — notes how a claim ended. A second note lasts at least as long as the first.
   Parameters: id, reason, expires
   Cost: one row. */
insert into {tombstones} (id, reason, expires) values (?, ?, ?)
on conflict (id) do update set reason = excluded.reason, expires = max(expires, excluded.expires)
