/* add_tombstone.sql — records that a claim has ended, so that a late `claim` call does not queue it again; the first reason
   stays. Deletes some of the bucket's tombstones that have expired. The caller has locked the bucket.
   in    p_id, p_bucket, p_reason; p_now; p_ttl: the claim's, in microseconds. It stays for so long, and no call waits for a lock
         for longer than the 60 s that it stays at least
   cost  that of purge_tombstones.sql, and an index probe */
CREATE PROCEDURE {add_tombstone}(
  IN p_id VARBINARY(64), IN p_bucket SMALLINT, IN p_reason VARCHAR(16) CHARACTER SET ascii, IN p_now BIGINT, IN p_ttl BIGINT
)
SQL SECURITY INVOKER MODIFIES SQL DATA COMMENT '{revision}'
BEGIN
  DECLARE v_expires BIGINT DEFAULT p_now + GREATEST(p_ttl, 60000000);
  CALL {purge_tombstones}(p_bucket, p_now);
  INSERT INTO {tombstones} (id, bucket, reason, expires) VALUES (p_id, p_bucket, p_reason, v_expires)
    ON DUPLICATE KEY UPDATE expires = v_expires;
END
