/* walk.sql — the admission rule: walks the queue of a key from its front, deletes expired rows and grants what fits. The
   only procedure that grants a claim that has waited.
   in      p_key, p_bucket; p_now: the time; p_freed: the permits of held rows that the caller has removed;
           p_inbox: the caller's; p_may_write: the caller's transaction has locked the bucket, which protects I1 and I2;
           p_may_grant: FALSE in a grace period after a loss of data
   out     o_used: permits of the admitted rows; o_front: arrival of the first row that does not fit, NULL: there is none;
           o_next: no lease of the rows that it looked at ends before, NULL: there are none; o_is_stale: without the lock: an expired row, or one
           to grant, may be there, so the rest is unknown
   in out  io_pushes: a push for each grant to a row with the caller's inbox, each on a line of its own
   cost    O(rows that are granted, and expired ones), an index probe each; O(admitted rows) once in each of their leases, and always while the
           bucket's row has the numbers of another key

   Invariant: the numbers are changed with each change of a held row, in the same transaction, but for leases that are renewed: they end
   later. They count for no longer than the earliest end, since the holder of that lease may be gone */
CREATE PROCEDURE {walk}(
  IN p_key VARBINARY(512), IN p_bucket SMALLINT, IN p_now BIGINT, IN p_freed BIGINT, IN p_inbox VARBINARY(64), IN p_may_write BOOLEAN,
  IN p_may_grant BOOLEAN, OUT o_used BIGINT, OUT o_front BIGINT, OUT o_next BIGINT, OUT o_is_stale BOOLEAN, INOUT io_pushes LONGBLOB
)
SQL SECURITY INVOKER MODIFIES SQL DATA COMMENT '{revision}'
BEGIN
  DECLARE v_id, v_inbox VARBINARY(64);
  DECLARE v_expires, v_token, v_floor, v_last BIGINT;
  -- below those of restored claims, which are in front of the queue
  DECLARE v_arrival BIGINT DEFAULT -4611686018427387904;
  DECLARE v_permits, v_limit, v_count INT;
  DECLARE v_state CHAR(1) CHARACTER SET ascii;
  DECLARE v_ttl, v_front_expires BIGINT;
  -- there are numbers; they are those of this key; they still count
  DECLARE v_has_numbers, v_is_own, v_is_counted BOOLEAN;
  DECLARE v_is_changed BOOLEAN DEFAULT FALSE;
  DECLARE v_used, v_waits_from, v_next_expiry, v_counted BIGINT;
  SET o_used = 0, o_front = NULL, o_next = NULL, o_is_stale = FALSE;
  SELECT used IS NOT NULL, used IS NOT NULL AND `key` = p_key, used, waits_from, next_expiry, counted
    INTO v_has_numbers, v_is_own, v_used, v_waits_from, v_next_expiry, v_counted FROM {buckets} WHERE bucket = p_bucket;
  -- after a loss of data the rows may be gone; before v_counted the clock has stepped back
  SET v_is_counted = v_has_numbers AND p_may_grant AND p_now >= v_counted AND p_now < v_next_expiry;
  IF v_is_own AND v_is_counted THEN
    SET o_used = v_used - p_freed, o_next = v_next_expiry, v_arrival = v_waits_from - 1, v_is_changed = p_freed > 0;
  ELSE
    -- a caller that has the bucket's lock reads all rows again, and writes the numbers
    SET o_is_stale = v_is_own AND NOT p_may_write, v_counted = p_now, v_waits_from = v_arrival, v_is_changed = NOT v_is_counted;
  END IF;
  rows_of_key: WHILE NOT o_is_stale DO
    SET v_id = NULL;
    SELECT id, arrival, expires, ttl * 1000, state, permits, permit_limit, token, token_count, floor, inbox
      INTO v_id, v_arrival, v_expires, v_ttl, v_state, v_permits, v_limit, v_token, v_count, v_floor, v_inbox
      FROM {claims} FORCE INDEX (by_key) WHERE `key` = p_key AND arrival > v_arrival ORDER BY arrival LIMIT 1;
    IF v_id IS NULL THEN LEAVE rows_of_key; END IF;
    IF v_expires <= p_now THEN
      IF NOT p_may_write THEN SET o_is_stale = TRUE; LEAVE rows_of_key; END IF;
      DELETE FROM {claims} WHERE id = v_id;
      IF v_state <> 'o' THEN
        CALL {add_tombstone}(v_id, p_bucket, IF(v_state = 'r', 'revoked', 'expired'), p_now, v_ttl);
      END IF;
      ITERATE rows_of_key;
    END IF;
    IF v_expires > p_now + v_ttl THEN
      -- the clock has stepped back: else the row of a dead process would stay until the clock has caught up
      IF NOT p_may_write THEN SET o_is_stale = TRUE; LEAVE rows_of_key; END IF;
      SET v_expires = p_now + v_ttl;
      UPDATE {claims} SET expires = v_expires WHERE id = v_id;
    END IF;
    IF o_used + v_permits > v_limit OR (v_token = 0 AND NOT p_may_grant) THEN
      SET o_front = v_arrival, v_front_expires = v_expires;
      LEAVE rows_of_key;
    END IF;
    SET o_next = LEAST(COALESCE(o_next, v_expires), v_expires), o_used = o_used + v_permits, v_waits_from = v_arrival + 1;
    IF v_token = 0 THEN
      IF NOT p_may_write THEN SET o_is_stale = TRUE; LEAVE rows_of_key; END IF;
      SELECT last_token INTO v_last FROM {buckets} WHERE bucket = p_bucket;
      SET v_token = GREATEST(v_last + 1, v_floor, p_now);
      UPDATE {buckets} SET last_token = v_token + v_count - 1 WHERE bucket = p_bucket;
      UPDATE {claims} SET token = v_token, granted = p_now WHERE id = v_id;
      SET v_is_changed = TRUE;
      IF v_inbox = p_inbox THEN
        SET io_pushes = CONCAT(io_pushes, '\n', v_id, ' ', v_token, ' ', v_count, ' ', (v_expires - p_now) DIV 1000);
      END IF;
    END IF;
  END WHILE;
  -- the numbers of another key stay while they count
  IF p_may_write AND v_is_changed AND (v_is_own OR NOT v_is_counted) AND (o_used > 0 OR v_has_numbers) THEN
    UPDATE {buckets} SET `key` = p_key, used = IF(o_used > 0, o_used, NULL), waits_from = v_waits_from, next_expiry = COALESCE(o_next, 0),
      counted = v_counted WHERE bucket = p_bucket;
  END IF;
  SET o_next = LEAST(COALESCE(o_next, v_front_expires), COALESCE(v_front_expires, o_next));
END
