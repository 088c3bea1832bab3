/* read_front.sql — the lowest arrival of a key, and the lowest that waits; null: there is none.
   Parameters: key
   Cost: O(claims of the key). */
select min(arrival) as lowest, min(case when token = 0 then arrival end) as lowest_waiting from {claims} where key = ?
