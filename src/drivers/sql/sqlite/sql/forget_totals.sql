/* forget_totals.sql — what is in use of a key is to be counted again.
   Parameters: key
   Cost: one row. */
delete from {totals} where key = ?
