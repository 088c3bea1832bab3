/* delete_claim.sql — removes a claim from its queue. Returns what it was.
   Parameters: id
   Cost: one row. */
delete from {claims} where id = ? returning key, state, expires, token, permits
