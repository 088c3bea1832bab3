/* detach.sql — detaches held claims: their leases run to the full ttl, or to p_left, and the way they end is kept as a tombstone.
   in       p_lock_wait: the longest wait for a lock, in seconds; p_left: milliseconds, NULL: the ttl; p_rows: the claims in order
            of their buckets (row-format.ts)
   returns  reply: "1" for each claim that was held, else "0"
   cost     an index probe a claim */
CREATE PROCEDURE {detach}(IN p_lock_wait INT, IN p_left BIGINT, IN p_rows LONGBLOB)
SQL SECURITY INVOKER MODIFIES SQL DATA COMMENT '{revision}'
BEGIN
  DECLARE v_flags VARBINARY(4000) DEFAULT '';
  DECLARE v_id VARBINARY(64);
  DECLARE v_row VARBINARY({row_width});
  DECLARE v_at INT DEFAULT 1;
  DECLARE v_bucket, v_locked SMALLINT DEFAULT -1;
  DECLARE v_last, v_now, v_ttl BIGINT;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION READ WRITE;
  BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    WHILE v_at < LENGTH(p_rows) DO
      SET v_row = SUBSTRING(p_rows, v_at, {row_width}), v_at = v_at + {row_width}, v_bucket = {row_bucket}, v_id = {row_id}, v_ttl = NULL;
      IF v_bucket <> v_locked THEN
        CALL {lock_bucket}(v_bucket, p_lock_wait, v_last, v_now);
        SET v_locked = v_bucket;
      END IF;
      SELECT LEAST(ttl, COALESCE(p_left, ttl)) * 1000 INTO v_ttl FROM {claims}
        WHERE id = v_id AND token > 0 AND state <> 'r' AND expires > v_now;
      SET v_flags = CONCAT(v_flags, IF(v_ttl IS NULL, '0', '1'));
      IF v_ttl IS NOT NULL THEN
        UPDATE {claims} SET state = 'd', expires = v_now + v_ttl WHERE id = v_id;
        -- its lease may end earlier now
        UPDATE {buckets} SET used = NULL WHERE bucket = v_bucket;
      END IF;
    END WHILE;
    COMMIT AND NO CHAIN NO RELEASE;
  END;
  SELECT CONVERT(v_flags USING ascii) AS reply;
END
