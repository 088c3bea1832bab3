/* purge_tombstones.sql — deletes tombstones of a bucket that have expired. Calls that write one do so, and releases that leave the bucket without
   claims: as long as it has tombstones they take the long way, so those of a burst go although no other burst follows. The caller has locked the bucket.
   in    p_bucket, p_now
   cost  at most 32 rows, one index probe each */
CREATE PROCEDURE {purge_tombstones}(IN p_bucket SMALLINT, IN p_now BIGINT)
SQL SECURITY INVOKER MODIFIES SQL DATA COMMENT '{revision}'
BEGIN
  DECLARE v_deletions INT DEFAULT 0;
  DECLARE v_id VARBINARY(64);
  -- found by a plain read and deleted by id: a range of an index would lock the rows of the next bucket as well
  batch: WHILE v_deletions < 32 DO
    SET v_id = NULL, v_deletions = v_deletions + 1;
    SELECT id INTO v_id FROM {tombstones} FORCE INDEX (by_bucket)
      WHERE bucket = p_bucket AND expires <= p_now ORDER BY expires LIMIT 1;
    IF v_id IS NULL THEN LEAVE batch; END IF;
    DELETE FROM {tombstones} WHERE id = v_id;
  END WHILE;
END
