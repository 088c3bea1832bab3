/* renew.sql — restarts the leases of claims, held and waiting alike, and answers for each. Most calls only ask whether a claim
   still waits, so what the rows say is the answer, without a lock, if the lease was restarted lately and nothing in the
   queue is to be done.
   in       p_inbox: the caller's; p_lock_wait: the longest wait for a lock, in seconds; p_rows: the claims in order of their
            buckets (row-format.ts), with a flag: it asks to be recalled; p_max_ttl: the longest ttl in ms, 0: guardDataLoss is off
   returns  replies: for each claim "<id> <reply>" on a line of its own, in any order; replies as in claim.sql, or
            "r ..." instead of "h ...": held, and recalled, since another claim waits;
            "b <end in ms>": unknown, or expired, in a grace period: if it was held, the caller may restore it
   cost     O(admitted + expired rows of each key); an index probe more for each held claim that asks to be recalled */
CREATE PROCEDURE {renew}(IN p_inbox VARBINARY(64), IN p_lock_wait INT, IN p_rows LONGBLOB, IN p_max_ttl BIGINT)
SQL SECURITY INVOKER MODIFIES SQL DATA COMMENT '{revision}'
BEGIN
  -- long batches: the reply grows by parts, since each CONCAT copies what it extends
  DECLARE v_replies, v_part LONGBLOB DEFAULT '';
  DECLARE v_reply VARCHAR(200) CHARACTER SET ascii;
  DECLARE v_left, v_pushes LONGBLOB DEFAULT '';
  DECLARE v_suffix VARCHAR(32) CHARACTER SET ascii DEFAULT '';
  DECLARE v_id VARBINARY(64);
  DECLARE v_key, v_walked VARBINARY(512);
  DECLARE v_state CHAR(1) CHARACTER SET ascii;
  DECLARE v_row VARBINARY({row_width});
  DECLARE v_at INT;
  DECLARE v_bucket, v_locked SMALLINT DEFAULT -1;
  DECLARE v_is_locked, v_is_stale BOOLEAN DEFAULT FALSE;
  DECLARE v_last, v_now, v_ttl, v_expires, v_arrival, v_token, v_used, v_front, v_next, v_freed BIGINT;
  DECLARE v_grace_ends BIGINT DEFAULT 0;
  DECLARE v_count INT;
  DECLARE v_recall BOOLEAN;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION READ WRITE;
  BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    SET v_now = {lease_now};
    IF v_now IS NULL THEN CALL {refuse_session}(); END IF;
    IF p_max_ttl > 0 THEN
      SELECT id INTO v_id FROM {claims} LIMIT 1;
      CALL {check_identity}(p_max_ttl, v_now, FALSE, FALSE, v_grace_ends);
      IF v_grace_ends IS NULL OR v_grace_ends > 0 THEN
        -- nothing is granted; a loss is noted below
        SET v_is_locked = TRUE, v_grace_ends = COALESCE(v_grace_ends, v_now + p_max_ttl * 1000),
          v_suffix = CONCAT(' ', (v_grace_ends + 999) DIV 1000);
      END IF;
    END IF;
    -- the first pass without locks; the second, under the locks of their buckets, for the claims that are left
    passes: LOOP
      SET v_walked = NULL, v_at = 1;
      WHILE v_at < LENGTH(p_rows) DO
        SET v_row = SUBSTRING(p_rows, v_at, {row_width}), v_at = v_at + {row_width}, v_bucket = {row_bucket}, v_id = {row_id},
          v_recall = {row_flag}, v_state = NULL, v_reply = NULL;
        IF v_is_locked AND v_bucket <> v_locked THEN
          CALL {lock_bucket}(v_bucket, p_lock_wait, v_last, v_now);
          SET v_locked = v_bucket;
        END IF;
        SELECT `key`, arrival, state, ttl * 1000, LEAST(expires, v_now + ttl * 1000), token, token_count,
          IF(token > 0, permits, 0)
          INTO v_key, v_arrival, v_state, v_ttl, v_expires, v_token, v_count, v_freed FROM {claims} WHERE id = v_id;
        IF v_state IS NULL THEN
          -- without the lock it may be in the row of its bucket
          IF v_is_locked THEN
            SET v_reply = COALESCE((SELECT CONCAT('n ', reason) FROM {tombstones} WHERE id = v_id AND expires > v_now),
              IF(v_grace_ends > 0, CONCAT('b', v_suffix), 'n'));
          END IF;
        ELSEIF v_state = 'r' THEN
          SET v_reply = 'n revoked';
        ELSEIF v_expires <= v_now AND v_grace_ends > 0 AND v_state = 'o' THEN
          -- the last renewals may be lost: the holder may still restore it
          DELETE FROM {claims} WHERE id = v_id;
          SET v_reply = CONCAT('b', v_suffix);
        ELSEIF v_expires <= v_now AND v_is_locked THEN
          DELETE FROM {claims} WHERE id = v_id;
          IF v_state = 'd' THEN CALL {add_tombstone}(v_id, v_bucket, 'expired', v_now, v_ttl); END IF;
          -- what it kept waiting is granted now, and not at the next recheck of a process that may be gone
          CALL {walk}(v_key, v_bucket, v_now, v_freed, p_inbox, v_is_locked, v_grace_ends = 0, v_used, v_front, v_next, v_is_stale, v_pushes);
          SET v_reply = 'n expired', v_walked = v_key;
        ELSEIF v_expires > v_now AND (v_is_locked OR (v_expires - v_now) * 8 > v_ttl * 7) THEN
          IF v_is_locked THEN
            SET v_expires = v_now + v_ttl;
            UPDATE {claims} SET expires = v_expires, inbox = p_inbox WHERE id = v_id;
          END IF;
          IF v_token = 0 AND (v_walked IS NULL OR v_walked <> v_key) THEN
            CALL {walk}(v_key, v_bucket, v_now, 0, p_inbox, v_is_locked, v_grace_ends = 0, v_used, v_front, v_next, v_is_stale, v_pushes);
            SET v_walked = v_key;
          END IF;
          IF v_token = 0 AND v_is_locked THEN SELECT token INTO v_token FROM {claims} WHERE id = v_id; END IF;
          IF v_token > 0 THEN
            -- what waits is behind all that is held
            IF v_recall THEN
              SELECT token = 0 INTO v_recall FROM {claims} FORCE INDEX (by_key) WHERE `key` = v_key ORDER BY arrival DESC LIMIT 1;
            END IF;
            SET v_reply = CONCAT(IF(v_recall AND v_state = 'o', 'r ', 'h '), v_token, ' ', v_count, ' ', (v_expires - v_now) DIV 1000, ' ', v_now DIV 1000, v_suffix);
          ELSEIF v_is_locked OR (NOT v_is_stale AND v_arrival >= v_front) THEN
            SET v_reply = CONCAT(IF(v_grace_ends > 0, 'w ', 'q '), (v_expires - v_now) DIV 1000, ' ',
              GREATEST((LEAST(v_next, v_expires, IF(v_grace_ends > 0, v_grace_ends, v_expires)) - v_now) DIV 1000, 1), ' ',
              v_now DIV 1000, IF(v_grace_ends > 0, v_suffix, CONCAT(' ', v_arrival - v_front)));
          END IF;
        END IF;
        IF v_reply IS NULL THEN
          SET v_left = CONCAT(v_left, v_row);
        ELSE
          SET v_part = CONCAT(v_part, v_id, ' ', v_reply, '\n');
          IF LENGTH(v_part) > 4000 THEN SET v_replies = CONCAT(v_replies, v_part), v_part = ''; END IF;
        END IF;
      END WHILE;
      IF v_left = '' THEN LEAVE passes; END IF;
      SET p_rows = v_left, v_left = '', v_is_locked = TRUE;
    END LOOP;
    IF p_max_ttl > 0 AND v_is_locked THEN CALL {check_identity}(p_max_ttl, v_now, TRUE, FALSE, v_grace_ends); END IF;
    COMMIT AND NO CHAIN NO RELEASE;
  END;
  SELECT CONVERT(CONCAT(v_replies, v_part) USING ascii) AS replies;
END
