/* add_tombstone.sql — records that a claim has ended, so that a late `claim` call does not queue it again; the first reason
   stays. Deletes a few of the bucket's tombstones that have expired. The caller has locked the bucket.
   in    p_id, p_bucket, p_reason; p_now; p_ttl: how long it stays, in microseconds
   cost  a few index probes */
CREATE PROCEDURE {add_tombstone}(
  IN p_id VARBINARY(64), IN p_bucket SMALLINT, IN p_reason VARCHAR(16) CHARACTER SET ascii, IN p_now BIGINT, IN p_ttl BIGINT
)
SQL SECURITY INVOKER MODIFIES SQL DATA COMMENT '{revision}'
BEGIN
  DECLARE v_deletions INT DEFAULT 0;
  DECLARE v_id VARBINARY(64);
  -- found by a plain read and deleted by id: a range of an index would lock the rows of the next bucket as well
  sweep: WHILE v_deletions < 4 DO
    SET v_id = NULL, v_deletions = v_deletions + 1;
    SELECT id INTO v_id FROM {tombstones} FORCE INDEX (by_bucket)
      WHERE bucket = p_bucket AND expires <= p_now ORDER BY expires LIMIT 1;
    IF v_id IS NULL THEN LEAVE sweep; END IF;
    DELETE FROM {tombstones} WHERE id = v_id;
  END WHILE;
  INSERT INTO {tombstones} (id, bucket, reason, expires) VALUES (p_id, p_bucket, p_reason, p_now + p_ttl)
    ON DUPLICATE KEY UPDATE expires = p_now + p_ttl;
END
