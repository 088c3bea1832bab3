/* delete-claim.sql — removes a claim from its queue.
   Parameters: id
   Cost: one row. */
delete from {claims} where id = ?
