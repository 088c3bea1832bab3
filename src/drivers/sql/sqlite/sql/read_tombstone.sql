/* read_tombstone.sql — how a claim ended.
   Parameters: id, now
   Cost: one row. */
select reason from {tombstones} where id = ? and expires > ?
