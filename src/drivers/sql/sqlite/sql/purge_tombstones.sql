/* purge_tombstones.sql — deletes expired tombstones, the oldest first.
   Parameters: now, the most rows
   Cost: O(rows). */
delete from {tombstones} where id in (select id from {tombstones} where expires <= ? order by expires limit ?)
