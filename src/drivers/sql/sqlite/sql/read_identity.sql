/* read_identity.sql — what the database was when data was last known to be there (identity.ts): at most one row.
   Cost: one row. */
select file, sequence, grace_begins, grace_ends from {identity}
