/* claim.sql — queues a claim, or finds it by its id and restarts its lease, and answers whether it is held.
   in       p_inbox: the caller's; p_lock_wait: the longest wait for a lock, in seconds; the fields of the claim
   returns  reply: "h <token> <tokens> <remaining ms> <store ms>" | "w <remaining ms> <recheck ms> <store ms>" | "n [reason]" |
            "f": the floor is more than a day ahead of the clock, and would exhaust the bucket's tokens
   cost     O(admitted + expired rows of the key) */
CREATE PROCEDURE {claim}(
  IN p_inbox VARBINARY(64), IN p_lock_wait INT, IN p_id VARBINARY(64), IN p_key VARBINARY(512), IN p_bucket SMALLINT,
  IN p_permits INT, IN p_limit INT, IN p_ttl BIGINT, IN p_count INT, IN p_floor BIGINT, IN p_wait TINYINT,
  IN p_label VARBINARY(1024)
)
SQL SECURITY INVOKER MODIFIES SQL DATA COMMENT '{revision}'
BEGIN
  DECLARE v_lock_wait INT DEFAULT @@session.innodb_lock_wait_timeout;
  DECLARE v_reply VARCHAR(200) CHARACTER SET ascii;
  DECLARE v_reason VARCHAR(16) CHARACTER SET ascii;
  DECLARE v_state CHAR(1) CHARACTER SET ascii;
  DECLARE v_other VARBINARY(512);
  DECLARE v_now, v_last, v_arrival, v_expires, v_used, v_front, v_next, v_swept BIGINT;
  DECLARE v_token BIGINT DEFAULT 0;
  DECLARE v_count INT DEFAULT p_count;
  DECLARE v_is_stale TINYINT;
  DECLARE v_pushes LONGBLOB DEFAULT '';
  -- fails inside an open transaction, which is not ours to commit or to roll back, so this precedes the handler
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION READ WRITE;
  BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      SET SESSION innodb_lock_wait_timeout = v_lock_wait;
      RESIGNAL;
    END;
    SET SESSION innodb_lock_wait_timeout = p_lock_wait;
    SELECT last_token INTO v_last FROM {buckets} WHERE bucket = p_bucket FOR UPDATE;
    -- read after the lock: a call that waited must not use an older time
    SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    IF ABS(TIMESTAMPDIFF(SECOND, NOW(), SYSDATE())) > 60 THEN
      SIGNAL SQLSTATE 'HF001' SET MESSAGE_TEXT = 'the clock of this session was set (SET timestamp): leases would end too early or never';
    END IF;
    decide: BEGIN
      SELECT reason INTO v_reason FROM {tombstones} WHERE id = p_id AND expires > v_now;
      IF v_reason IS NOT NULL THEN SET v_reply = CONCAT('n ', v_reason); LEAVE decide; END IF;
      SELECT state, LEAST(expires, v_now + ttl * 1000), arrival INTO v_state, v_expires, v_arrival FROM {claims} WHERE id = p_id;
      IF v_state = 'r' THEN SET v_reply = 'n revoked'; LEAVE decide; END IF;
      IF v_expires <= v_now THEN
        DELETE FROM {claims} WHERE id = p_id;
        IF v_state = 'd' THEN CALL {add_tombstone}(p_id, p_bucket, 'expired', v_now, GREATEST(p_ttl * 1000, 60000000)); END IF;
        CALL {walk}(p_key, p_bucket, v_now, p_inbox, 1, v_used, v_front, v_next, v_is_stale, v_pushes);
        SET v_reply = 'n expired';
        LEAVE decide;
      END IF;
      IF v_state IS NOT NULL THEN
        UPDATE {claims} SET expires = v_now + ttl * 1000, inbox = p_inbox WHERE id = p_id;
        CALL {walk}(p_key, p_bucket, v_now, p_inbox, 1, v_used, v_front, v_next, v_is_stale, v_pushes);
        SELECT token, token_count, v_now + ttl * 1000 INTO v_token, v_count, v_expires FROM {claims} WHERE id = p_id;
        LEAVE decide;
      END IF;
      -- a floor at the last token is fine wherever the clock is: after it has stepped back, floors are the tokens of earlier grants
      IF p_floor > v_now + 86400000000 AND p_floor > v_last + 1 THEN SET v_reply = 'f'; LEAVE decide; END IF;
      SELECT arrival INTO v_arrival FROM {claims} FORCE INDEX (by_key) WHERE `key` = p_key ORDER BY arrival DESC LIMIT 1;
      SET v_used = 0, v_expires = v_now + p_ttl * 1000;
      IF v_arrival IS NOT NULL THEN
        CALL {walk}(p_key, p_bucket, v_now, p_inbox, 1, v_used, v_front, v_next, v_is_stale, v_pushes);
        -- the walk may have deleted the last row, and read granted tokens
        SELECT last_token INTO v_last FROM {buckets} WHERE bucket = p_bucket;
      END IF;
      IF v_front IS NULL AND v_used + p_permits <= p_limit THEN
        SET v_token = GREATEST(v_last + 1, p_floor, v_now);
        UPDATE {buckets} SET last_token = v_token + p_count - 1 WHERE bucket = p_bucket;
      ELSEIF NOT p_wait THEN
        SET v_reply = 'n';
        LEAVE decide;
      END IF;
      INSERT INTO {claims} (id, `key`, arrival, bucket, permits, permit_limit, state, ttl, expires, token, token_count,
        floor, inbox, wait, label, created, granted) VALUES (p_id, p_key, COALESCE(v_arrival, 0) + 1, p_bucket, p_permits, p_limit,
        'o', p_ttl, v_expires, v_token, p_count, p_floor, p_inbox, p_wait, p_label, v_now, IF(v_token > 0, v_now, NULL));
      -- rows of processes that died stay if their keys are not used again; ids are random, so all are met in time
      SELECT `key`, expires INTO v_other, v_swept FROM {claims} FORCE INDEX (by_bucket)
        WHERE bucket = p_bucket AND id > p_id ORDER BY id LIMIT 1;
      IF v_swept <= v_now THEN
        CALL {walk}(v_other, p_bucket, v_now, p_inbox, 1, v_used, v_front, v_swept, v_is_stale, v_pushes);
      END IF;
    END;
    COMMIT AND NO CHAIN NO RELEASE;
    SET SESSION innodb_lock_wait_timeout = v_lock_wait;
  END;
  IF v_reply IS NULL AND v_token > 0 THEN
    SET v_reply = CONCAT('h ', v_token, ' ', v_count, ' ', (v_expires - v_now) DIV 1000, ' ', v_now DIV 1000);
  ELSEIF v_reply IS NULL THEN
    SET v_reply = CONCAT('w ', (v_expires - v_now) DIV 1000, ' ', GREATEST((LEAST(COALESCE(v_next, v_expires), v_expires) - v_now) DIV 1000, 1), ' ', v_now DIV 1000);
  END IF;
  SELECT v_reply AS reply;
END
