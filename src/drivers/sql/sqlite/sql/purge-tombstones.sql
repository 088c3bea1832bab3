/* purge-tombstones.sql — deletes a few expired tombstones: more than one for each that is written, so they do not pile up.
   Parameters: now
   Cost: at most four rows. */
delete from {tombstones} where id in (select id from {tombstones} where expires <= ? order by expires limit 4)
