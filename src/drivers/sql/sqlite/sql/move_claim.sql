/* move_claim.sql — moves a claim within its queue.
   Parameters: arrival, id
   Cost: one row. */
update {claims} set arrival = ? where id = ?
