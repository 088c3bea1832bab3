/* set_state.sql — marks a claim as detached or revoked, and sets the end of its lease.
   Parameters: state, expires, id
   Cost: one row. */
update {claims} set state = ?, expires = ? where id = ?
