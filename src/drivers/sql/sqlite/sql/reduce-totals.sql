/* reduce-totals.sql — counts the permits of a holder out. Returns what is left.
   Parameters: permits, key
   Cost: one row. */
update {totals} set used = used - ? where key = ? returning used
