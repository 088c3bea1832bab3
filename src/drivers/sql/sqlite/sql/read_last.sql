/* read_last.sql — the token of the last claim of a queue: 0 if it waits.
   Parameters: key
   Cost: the end of the index. */
select token from {claims} where key = ? order by arrival desc limit 1
