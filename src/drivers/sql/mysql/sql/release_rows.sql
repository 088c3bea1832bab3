/* release_rows.sql — the part of release.sql for every case: several claims, a claim with others in its bucket, one that has ended. The
   caller has begun the transaction, and commits it.
   in       as release.sql
   returns  as release.sql
   cost     a walk (walk.sql) of each key, and a few index probes for each claim */
CREATE PROCEDURE {release_rows}(IN p_inbox VARBINARY(64), IN p_lock_wait INT, IN p_rows LONGBLOB, IN p_max_ttl BIGINT)
SQL SECURITY INVOKER MODIFIES SQL DATA COMMENT '{revision}'
BEGIN
  DECLARE v_flags VARBINARY(4000) DEFAULT '';
  DECLARE v_pushes LONGBLOB DEFAULT '';
  DECLARE v_row VARBINARY({row_width});
  DECLARE v_id VARBINARY(64);
  DECLARE v_key, v_touched VARBINARY(512);
  DECLARE v_state CHAR(1) CHARACTER SET ascii;
  DECLARE v_at INT DEFAULT 1;
  DECLARE v_bucket, v_locked SMALLINT DEFAULT -1;
  DECLARE v_was_there, v_in_flight, v_is_stale BOOLEAN;
  DECLARE v_may_grant BOOLEAN DEFAULT TRUE;
  DECLARE v_grace_ends BIGINT;
  DECLARE v_last, v_now, v_expires, v_behind, v_used, v_front, v_next, v_permits BIGINT;
  DECLARE v_freed BIGINT DEFAULT 0;
  WHILE v_at < LENGTH(p_rows) DO
    SET v_row = SUBSTRING(p_rows, v_at, {row_width}), v_at = v_at + {row_width}, v_bucket = {row_bucket}, v_id = {row_id},
      v_in_flight = {row_flag};
    IF v_bucket <> v_locked THEN
      CALL {lock_bucket}(v_bucket, p_lock_wait, v_last, v_now);
      SET v_locked = v_bucket, v_behind = NULL;
    END IF;
    SET v_state = NULL, v_permits = 0;
    SELECT `key`, state, expires, IF(token > 0, permits, 0) INTO v_key, v_state, v_expires, v_permits FROM {claims} WHERE id = v_id;
    SET v_freed = v_freed + v_permits, v_was_there = FALSE;
    IF v_state IS NOT NULL THEN
      DELETE FROM {claims} WHERE id = v_id;
      SET v_touched = v_key, v_was_there = v_state <> 'r' AND v_expires > v_now;
    END IF;
    IF v_in_flight OR (v_state <> 'o' AND v_expires > v_now) THEN
      CALL {add_tombstone}(v_id, v_bucket, IF(v_state = 'r', 'revoked', 'released'), v_now, {row_ttl} * 1000);
    END IF;
    SET v_flags = CONCAT(v_flags, IF(v_was_there, '1', '0'));
    -- one walk for the releases of a key that follow each other
    IF v_touched IS NOT NULL AND {row_ends_key} THEN
      IF p_max_ttl > 0 THEN
        CALL {check_identity}(p_max_ttl, v_now, FALSE, FALSE, v_grace_ends);
        SET v_may_grant = v_grace_ends <=> 0;
      END IF;
      CALL {walk}(v_touched, v_bucket, v_now, v_freed, p_inbox, TRUE, v_may_grant, v_used, v_front, v_next, v_is_stale, v_pushes);
      SET v_behind = COALESCE(v_front, NULLIF(v_used, 0)), v_touched = NULL, v_freed = 0;
    END IF;
    -- nothing follows that writes a claim or a tombstone of the bucket: if it has none, the next claim is alone in it
    IF {row_ends_bucket} AND v_behind IS NULL AND NOT EXISTS (SELECT 1 FROM {claims} WHERE bucket = v_bucket) THEN
      CALL {purge_tombstones}(v_bucket, v_now);
      IF p_max_ttl = 0 AND NOT EXISTS (SELECT 1 FROM {tombstones} WHERE bucket = v_bucket) THEN
        UPDATE {buckets} SET form = 'free', used = NULL WHERE bucket = v_bucket;
      END IF;
    END IF;
  END WHILE;
  -- a loss is noted after the last bucket is locked
  IF NOT v_may_grant THEN CALL {check_identity}(p_max_ttl, v_now, TRUE, FALSE, v_grace_ends); END IF;
  IF v_pushes <> '' OR LOCATE('0', v_flags) > 0 THEN
    SELECT CONVERT(CONCAT(v_flags, v_pushes) USING ascii) AS reply;
  END IF;
END
