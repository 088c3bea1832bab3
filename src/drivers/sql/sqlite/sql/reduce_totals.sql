/* reduce_totals.sql — subtracts the permits of a claim that is not held any more. Returns the permits that are still in use.
   Parameters: permits, key
   Cost: one row. */
update {totals} set used = used - ? where key = ? returning used
