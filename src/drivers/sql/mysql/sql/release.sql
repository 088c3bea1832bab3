/* release.sql — removes claims, waiting or held, and grants what is admitted now.
   in       p_inbox: the caller's; p_lock_wait: the longest wait for a lock, in seconds; p_rows: the claims in order of their
            buckets, each as bucket (4 digits), id (26), "1" if a `claim` call may still arrive, ttl of a tombstone (16, ms)
   returns  reply: "1" for each claim that was there, else "0"; then for each granted row with the caller's inbox a comma and
            "<id> <token> <tokens> <remaining ms>"
   cost     O(admitted + expired rows of each key) */
CREATE PROCEDURE {release}(IN p_inbox VARBINARY(64), IN p_lock_wait INT, IN p_rows LONGBLOB)
SQL SECURITY INVOKER MODIFIES SQL DATA COMMENT '{revision}'
BEGIN
  DECLARE v_lock_wait INT DEFAULT @@session.innodb_lock_wait_timeout;
  DECLARE v_flags VARBINARY(4000) DEFAULT '';
  DECLARE v_pushes LONGBLOB DEFAULT '';
  DECLARE v_id, v_behind VARBINARY(64);
  DECLARE v_key, v_touched VARBINARY(512);
  DECLARE v_state CHAR(1) CHARACTER SET ascii;
  DECLARE v_at INT DEFAULT 1;
  DECLARE v_bucket, v_touched_bucket SMALLINT;
  DECLARE v_in_flight, v_is_stale TINYINT;
  DECLARE v_now, v_ttl, v_expires, v_used, v_front, v_next BIGINT;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION READ WRITE;
  BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      SET SESSION innodb_lock_wait_timeout = v_lock_wait;
      RESIGNAL;
    END;
    SET SESSION innodb_lock_wait_timeout = p_lock_wait;
    CALL {lock_buckets}(p_rows, 47, v_now);
    items: LOOP
      SET v_state = NULL, v_key = NULL;
      IF v_at < LENGTH(p_rows) THEN
        SET v_bucket = CAST(SUBSTRING(p_rows, v_at, 4) AS SIGNED), v_id = SUBSTRING(p_rows, v_at + 4, 26),
          v_in_flight = SUBSTRING(p_rows, v_at + 30, 1) = '1', v_ttl = CAST(SUBSTRING(p_rows, v_at + 31, 16) AS SIGNED) * 1000;
        SELECT `key`, state, expires INTO v_key, v_state, v_expires FROM {claims} WHERE id = v_id;
      END IF;
      -- one walk for the releases of a key that follow each other
      IF v_touched IS NOT NULL AND (v_key IS NULL OR v_key <> v_touched) THEN
        SET v_behind = NULL;
        SELECT id INTO v_behind FROM {claims} FORCE INDEX (by_key) WHERE `key` = v_touched ORDER BY arrival LIMIT 1;
        IF v_behind IS NOT NULL THEN
          CALL {walk}(v_touched, v_touched_bucket, v_now, p_inbox, 1, v_used, v_front, v_next, v_is_stale, v_pushes);
        END IF;
        SET v_touched = NULL;
      END IF;
      IF v_at > LENGTH(p_rows) THEN LEAVE items; END IF;
      SET v_at = v_at + 47;
      IF v_key IS NOT NULL THEN
        DELETE FROM {claims} WHERE id = v_id;
        SET v_touched = v_key, v_touched_bucket = v_bucket;
      END IF;
      SET v_flags = CONCAT(v_flags, IF(v_state <> 'r' AND v_expires > v_now, '1', '0'));
      IF v_in_flight OR (v_state <> 'o' AND v_expires > v_now) THEN
        CALL {add_tombstone}(v_id, v_bucket, IF(v_state = 'r', 'revoked', 'released'), v_now, v_ttl);
      END IF;
    END LOOP;
    COMMIT AND NO CHAIN NO RELEASE;
    SET SESSION innodb_lock_wait_timeout = v_lock_wait;
  END;
  SELECT CONVERT(CONCAT(v_flags, v_pushes) USING ascii) AS reply;
END
