/* read_clock.sql — the time, and a number that every change by this connection raises.
   Returns now; changes.
   Cost: no table is read. */
select {now} as now, total_changes() as changes
