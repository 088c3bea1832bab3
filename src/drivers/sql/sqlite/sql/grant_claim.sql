/* grant_claim.sql — grants a waiting claim. Its lease stays as it is: its client counts it from a call that it sent.
   Parameters: token, now, id
   Cost: one row. */
update {claims} set token = ?, granted = ? where id = ?
