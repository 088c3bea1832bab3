/* read_totals.sql — what is in use of a key by claims that share it: at most one row. None: it is to be counted.
   Parameters: key
   Cost: one row. */
select used, first_expires, written from {totals} where key = ?
