/* read-clock.sql — the time, and a number that every change by this connection raises.
   Returns now in microseconds, exact to a millisecond; changes. Every statement reads the clock again.
   Cost: no table is read. */
select cast(round(unixepoch('subsec') * 1000) as integer) * 1000 as now, total_changes() as changes
