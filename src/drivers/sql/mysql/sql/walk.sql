/* walk.sql — the admission rule: walks the queue of a key from its front, deletes expired rows and grants what fits. The
   only procedure that grants a claim that has waited.
   in      p_key, p_bucket; p_now: the time; p_inbox: the caller's; p_mode: 1: the caller's transaction has locked the
           bucket, which protects I1 and I2; 2: as well, in a grace period after a loss of data, in which nothing is granted; 0: nothing
           is written
   out     o_used: permits of the admitted rows; o_front: arrival of the first row that does not fit, NULL: there is none;
           o_next: the earliest expiry of the rows that were read, NULL: none; o_is_stale: without the lock: an expired row, or one
           to grant, was found, so the rest is unknown
   in out  io_pushes: a push for each grant to a row with the caller's inbox, each on a line of its own
   cost    O(admitted + expired rows), an index probe each */
CREATE PROCEDURE {walk}(
  IN p_key VARBINARY(512), IN p_bucket SMALLINT, IN p_now BIGINT, IN p_inbox VARBINARY(64), IN p_mode TINYINT,
  OUT o_used BIGINT, OUT o_front BIGINT, OUT o_next BIGINT, OUT o_is_stale TINYINT, INOUT io_pushes LONGBLOB
)
SQL SECURITY INVOKER MODIFIES SQL DATA COMMENT '{revision}'
BEGIN
  DECLARE v_id, v_inbox VARBINARY(64);
  DECLARE v_expires, v_token, v_floor, v_last BIGINT DEFAULT -1;
  -- below those of restored claims, which are in front of the queue
  DECLARE v_arrival BIGINT DEFAULT -4611686018427387904;
  DECLARE v_permits, v_limit, v_count INT;
  DECLARE v_state CHAR(1) CHARACTER SET ascii;
  DECLARE v_ttl BIGINT;
  SET o_used = 0, o_front = NULL, o_next = NULL, o_is_stale = 0;
  rows_of_key: LOOP
    SET v_id = NULL;
    SELECT id, arrival, expires, ttl * 1000, state, permits, permit_limit, token, token_count, floor, inbox
      INTO v_id, v_arrival, v_expires, v_ttl, v_state, v_permits, v_limit, v_token, v_count, v_floor, v_inbox
      FROM {claims} FORCE INDEX (by_key) WHERE `key` = p_key AND arrival > v_arrival ORDER BY arrival LIMIT 1;
    IF v_id IS NULL THEN LEAVE rows_of_key; END IF;
    IF v_expires <= p_now THEN
      IF p_mode = 0 THEN SET o_is_stale = 1; LEAVE rows_of_key; END IF;
      DELETE FROM {claims} WHERE id = v_id;
      IF v_state <> 'o' THEN
        CALL {add_tombstone}(v_id, p_bucket, IF(v_state = 'r', 'revoked', 'expired'), p_now, GREATEST(v_ttl, 60000000));
      END IF;
      ITERATE rows_of_key;
    END IF;
    IF v_expires > p_now + v_ttl THEN
      -- the clock has stepped back: else the row of a dead process would stay until the clock has caught up
      IF p_mode = 0 THEN SET o_is_stale = 1; LEAVE rows_of_key; END IF;
      SET v_expires = p_now + v_ttl;
      UPDATE {claims} SET expires = v_expires WHERE id = v_id;
    END IF;
    SET o_next = LEAST(COALESCE(o_next, v_expires), v_expires);
    IF o_used + v_permits > v_limit OR (v_token = 0 AND p_mode = 2) THEN SET o_front = v_arrival; LEAVE rows_of_key; END IF;
    SET o_used = o_used + v_permits;
    IF v_token = 0 THEN
      IF p_mode = 0 THEN SET o_is_stale = 1; LEAVE rows_of_key; END IF;
      SELECT last_token INTO v_last FROM {buckets} WHERE bucket = p_bucket;
      SET v_token = GREATEST(v_last + 1, v_floor, p_now);
      UPDATE {buckets} SET last_token = v_token + v_count - 1 WHERE bucket = p_bucket;
      UPDATE {claims} SET token = v_token, granted = p_now WHERE id = v_id;
      IF v_inbox = p_inbox THEN
        SET io_pushes = CONCAT(io_pushes, '\n', v_id, ' ', v_token, ' ', v_count, ' ', (v_expires - p_now) DIV 1000);
      END IF;
    END IF;
  END LOOP;
END
