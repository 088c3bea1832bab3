/* revoke.sql — revokes a held claim: from now on it is answered "n revoked" and keeps its place until it is released or its
   lease ends; with p_at_once it is removed.
   in       p_inbox: the caller's; p_lock_wait: the longest wait for a lock, in seconds; p_key, p_bucket; p_token: any of the claim's tokens;
            p_max_ttl: the longest ttl in ms, 0: guardDataLoss is off
   returns  reply: "1" if there was such a claim, else "0"; then pushes as in release.sql, and "<id>" if the claim has the caller's inbox
   cost     O(admitted + expired rows of the key) */
CREATE PROCEDURE {revoke}(
  IN p_inbox VARBINARY(64), IN p_lock_wait INT, IN p_key VARBINARY(512), IN p_bucket SMALLINT, IN p_token BIGINT, IN p_at_once BOOLEAN,
  IN p_max_ttl BIGINT
)
SQL SECURITY INVOKER MODIFIES SQL DATA COMMENT '{revision}'
BEGIN
  DECLARE v_id, v_inbox VARBINARY(64);
  DECLARE v_permits, v_ttl, v_now, v_last, v_used, v_front, v_next BIGINT;
  DECLARE v_is_stale BOOLEAN;
  DECLARE v_grace_ends BIGINT DEFAULT 0;
  DECLARE v_pushes LONGBLOB DEFAULT '';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION READ WRITE;
  BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    CALL {lock_bucket}(p_bucket, p_lock_wait, v_last, v_now);
    SELECT id, inbox, permits, ttl * 1000 INTO v_id, v_inbox, v_permits, v_ttl FROM {claims} FORCE INDEX (by_key)
      WHERE `key` = p_key AND token > 0 AND p_token BETWEEN token AND token + token_count - 1 AND expires > v_now
        AND (p_at_once OR state <> 'r')
      ORDER BY arrival LIMIT 1;
    IF v_id IS NOT NULL AND p_at_once THEN
      DELETE FROM {claims} WHERE id = v_id;
      CALL {add_tombstone}(v_id, p_bucket, 'revoked', v_now, v_ttl);
      IF p_max_ttl > 0 THEN CALL {check_identity}(p_max_ttl, v_now, TRUE, FALSE, v_grace_ends); END IF;
      CALL {walk}(p_key, p_bucket, v_now, v_permits, p_inbox, TRUE, v_grace_ends = 0, v_used, v_front, v_next, v_is_stale, v_pushes);
    ELSEIF v_id IS NOT NULL THEN
      UPDATE {claims} SET state = 'r' WHERE id = v_id;
    END IF;
    COMMIT AND NO CHAIN NO RELEASE;
  END;
  IF v_inbox = p_inbox THEN SET v_pushes = CONCAT('\n', v_id, v_pushes); END IF;
  SELECT CONVERT(CONCAT(IF(v_id IS NULL, '0', '1'), v_pushes) USING ascii) AS reply;
END
