/* extend_lease.sql — moves the end of a lease, for the process with this inbox.
   Parameters: expires, inbox, id
   Cost: one row, no index. */
update {claims} set expires = ?, inbox = ? where id = ?
