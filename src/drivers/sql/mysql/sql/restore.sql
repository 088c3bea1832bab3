/* restore.sql — puts a claim back that was held when data was lost, with its token (option guardDataLoss). The caller knows that it
   held it, and that the lease had not ended: if no grace period is running, that proves a loss, and one begins. A claim that waits
   here is restored, too: its grant may be what was lost.
   in       p_inbox: the caller's; p_lock_wait: the longest wait for a lock, in seconds; p_max_ttl: the longest ttl in ms; the fields
            of the claim, and its token
   returns  reply: as claim.sql
   cost     that of order_holders.sql, which keeps conflicting claims apart (I1) */
CREATE PROCEDURE {restore}(
  IN p_inbox VARBINARY(64), IN p_lock_wait INT, IN p_max_ttl BIGINT, IN p_id VARBINARY(64), IN p_key VARBINARY(512),
  IN p_bucket SMALLINT, IN p_permits INT, IN p_limit INT, IN p_ttl BIGINT, IN p_count INT, IN p_floor BIGINT, IN p_wait BOOLEAN,
  IN p_label VARBINARY(1024), IN p_token BIGINT
)
SQL SECURITY INVOKER MODIFIES SQL DATA COMMENT '{revision}'
BEGIN
  DECLARE v_reason VARCHAR(16) CHARACTER SET ascii;
  DECLARE v_state CHAR(1) CHARACTER SET ascii;
  DECLARE v_now, v_last, v_grace_ends, v_arrival, v_expires BIGINT;
  DECLARE v_token BIGINT DEFAULT 0;
  DECLARE v_count INT;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION READ WRITE;
  BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    CALL {lock_bucket}(p_bucket, p_lock_wait, v_last, v_now);
    SELECT token INTO v_token FROM {claims} WHERE id = p_id;
    CALL {check_identity}(p_max_ttl, v_now, TRUE, TRUE, v_grace_ends);
    SELECT reason INTO v_reason FROM {tombstones} WHERE id = p_id AND expires > v_now;
    SET v_expires = v_now + p_ttl * 1000;
    IF v_token > 0 THEN
      UPDATE {claims} SET expires = v_expires, inbox = p_inbox WHERE id = p_id AND state <> 'r' AND expires > v_now;
    ELSEIF v_reason IS NULL AND p_token <= v_now + 86400000000 THEN
      DELETE FROM {claims} WHERE id = p_id;
      SELECT COALESCE(MIN(arrival), 2) - 1 INTO v_arrival FROM {claims} FORCE INDEX (by_key) WHERE `key` = p_key;
      INSERT INTO {claims} (id, `key`, arrival, bucket, permits, permit_limit, state, ttl, expires, token, token_count,
        floor, inbox, wait, label, created, granted) VALUES (p_id, p_key, v_arrival, p_bucket, p_permits, p_limit, 'o', p_ttl,
        v_expires, p_token, p_count, p_floor, p_inbox, p_wait, p_label, v_now, v_now);
      UPDATE {buckets} SET last_token = GREATEST(last_token, p_token + p_count - 1), used = NULL WHERE bucket = p_bucket;
      CALL {order_holders}(p_key, p_bucket, v_now);
    END IF;
    SET v_token = 0;
    SELECT state, token, token_count INTO v_state, v_token, v_count FROM {claims} WHERE id = p_id AND expires > v_now;
    COMMIT AND NO CHAIN NO RELEASE;
  END;
  SELECT CASE
    WHEN v_state = 'r' THEN 'n revoked'
    WHEN v_token > 0 THEN CONCAT('h ', v_token, ' ', v_count, ' ', p_ttl, ' ', v_now DIV 1000, ' ', (v_grace_ends + 999) DIV 1000)
    WHEN v_reason IS NOT NULL THEN CONCAT('n ', v_reason)
    ELSE 'n'
  END AS reply;
END
