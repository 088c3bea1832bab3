/* claim_queued.sql — the part of claim.sql for every case: other claims of the bucket, a claim that is known, a grace period. The caller
   has begun the transaction, and commits it.
   in       as claim.sql
   returns  as claim.sql
   cost     O(admitted + expired rows of the key) */
CREATE PROCEDURE {claim_queued}(
  IN p_inbox VARBINARY(64), IN p_lock_wait INT, IN p_id VARBINARY(64), IN p_key VARBINARY(512), IN p_bucket SMALLINT,
  IN p_permits INT, IN p_limit INT, IN p_ttl BIGINT, IN p_count INT, IN p_floor BIGINT, IN p_wait BOOLEAN,
  IN p_recall BOOLEAN, IN p_label VARBINARY(1024), IN p_max_ttl BIGINT
)
SQL SECURITY INVOKER MODIFIES SQL DATA COMMENT '{revision}'
BEGIN
  DECLARE v_reply VARCHAR(200) CHARACTER SET ascii;
  DECLARE v_reason VARCHAR(16) CHARACTER SET ascii;
  DECLARE v_state CHAR(1) CHARACTER SET ascii;
  DECLARE v_neighbour VARBINARY(64);
  DECLARE v_other VARBINARY(512);
  DECLARE v_now, v_last, v_arrival, v_expires, v_used, v_front, v_next, v_swept, v_ahead, v_freed BIGINT;
  DECLARE v_sweeps INT;
  DECLARE v_token BIGINT DEFAULT 0;
  DECLARE v_count INT DEFAULT p_count;
  DECLARE v_is_stale BOOLEAN;
  DECLARE v_is_recalled BOOLEAN DEFAULT FALSE;
  DECLARE v_pushes LONGBLOB DEFAULT '';
  DECLARE v_grace_ends BIGINT DEFAULT 0;
  CALL {lock_bucket}(p_bucket, p_lock_wait, v_last, v_now);
  decide: BEGIN
    SELECT reason INTO v_reason FROM {tombstones} WHERE id = p_id AND expires > v_now;
    IF v_reason IS NOT NULL THEN SET v_reply = CONCAT('n ', v_reason); LEAVE decide; END IF;
    SELECT MAX(arrival) INTO v_arrival FROM {claims} WHERE `key` = p_key;
    IF p_max_ttl > 0 THEN CALL {check_identity}(p_max_ttl, v_now, TRUE, FALSE, v_grace_ends); END IF;
    IF v_arrival IS NOT NULL THEN
      SELECT state, LEAST(expires, v_now + ttl * 1000), IF(token > 0, permits, 0) INTO v_state, v_expires, v_freed FROM {claims} WHERE id = p_id;
      IF v_state = 'r' THEN SET v_reply = 'n revoked'; LEAVE decide; END IF;
      IF v_expires <= v_now THEN
        DELETE FROM {claims} WHERE id = p_id;
        IF v_state = 'd' THEN CALL {add_tombstone}(p_id, p_bucket, 'expired', v_now, p_ttl * 1000); END IF;
        CALL {walk}(p_key, p_bucket, v_now, v_freed, p_inbox, TRUE, v_grace_ends = 0, v_used, v_front, v_next, v_is_stale, v_pushes);
        SET v_reply = 'n expired';
        LEAVE decide;
      END IF;
      IF v_state IS NOT NULL THEN
        UPDATE {claims} SET expires = v_now + ttl * 1000, inbox = p_inbox WHERE id = p_id;
        CALL {walk}(p_key, p_bucket, v_now, 0, p_inbox, TRUE, v_grace_ends = 0, v_used, v_front, v_next, v_is_stale, v_pushes);
        SELECT token, token_count, v_now + ttl * 1000, arrival - COALESCE(v_front, arrival) INTO v_token, v_count, v_expires, v_ahead
          FROM {claims} WHERE id = p_id;
        -- what waits is behind all that is held
        IF p_recall AND v_state = 'o' THEN
          SELECT token = 0 INTO v_is_recalled FROM {claims} FORCE INDEX (by_key) WHERE `key` = p_key ORDER BY arrival DESC LIMIT 1;
        END IF;
        LEAVE decide;
      END IF;
    END IF;
    -- a floor at the last token is fine wherever the clock is: after it has stepped back, floors are the tokens of earlier grants
    IF p_floor > v_now + 86400000000 AND p_floor > v_last + 1 THEN SET v_reply = 'f'; LEAVE decide; END IF;
    SET v_used = 0, v_expires = v_now + p_ttl * 1000;
    IF v_arrival IS NOT NULL THEN
      CALL {walk}(p_key, p_bucket, v_now, 0, p_inbox, TRUE, v_grace_ends = 0, v_used, v_front, v_next, v_is_stale, v_pushes);
      -- the walk may have granted tokens
      SELECT last_token, GREATEST(v_arrival, IF(used IS NOT NULL AND `key` = p_key, waits_from - 1, v_arrival)) INTO v_last, v_arrival
        FROM {buckets} WHERE bucket = p_bucket;
    END IF;
    SET v_arrival = COALESCE(v_arrival, 0) + 1, v_ahead = v_arrival - COALESCE(v_front, v_arrival);
    IF v_grace_ends = 0 AND v_front IS NULL AND v_used + p_permits <= p_limit THEN
      SET v_token = GREATEST(v_last + 1, p_floor, v_now);
      -- if another program has deleted the rows of the key, the numbers of the bucket's row are out of date. Without numbers `used` stays NULL
      UPDATE {buckets} SET last_token = v_token + p_count - 1,
          used = IF(`key` = p_key, IF(v_arrival = 1, NULL, used + p_permits), used),
          waits_from = IF(`key` = p_key, v_arrival + 1, waits_from),
          next_expiry = IF(`key` = p_key, LEAST(next_expiry, v_expires), next_expiry)
        WHERE bucket = p_bucket;
    ELSEIF NOT p_wait THEN
      -- unknown is not busy: the holder may not have restored its claim yet
      SET v_reply = IF(v_grace_ends > 0 AND v_used + p_permits <= p_limit,
        CONCAT('p ', (v_grace_ends + 999) DIV 1000, ' ', v_now DIV 1000), 'n');
      LEAVE decide;
    END IF;
    INSERT INTO {claims} (id, `key`, arrival, bucket, permits, permit_limit, state, ttl, expires, token, token_count,
      floor, inbox, wait, label, created, granted) VALUES (p_id, p_key, v_arrival, p_bucket, p_permits, p_limit,
      'o', p_ttl, v_expires, v_token, p_count, p_floor, p_inbox, p_wait, p_label, v_now, IF(v_token > 0, v_now, NULL));
    -- rows of processes that died stay if their keys are not used again, and behind a claim that waits for long, where each walk
    -- ends. One claim in 16 removes those that follow its own row in the order of ids, up to the first live one, and after the last
    -- row the first ones
    IF SUBSTRING(p_id, 9, 1) < '4' THEN
      SET v_neighbour = p_id, v_sweeps = 0;
      sweep: WHILE v_sweeps < 32 DO
        SELECT COALESCE(MIN(id), '') INTO v_neighbour FROM {claims} WHERE bucket = p_bucket AND id > v_neighbour;
        SET v_swept = NULL, v_sweeps = v_sweeps + 1;
        SELECT `key`, expires INTO v_other, v_swept FROM {claims} WHERE id = v_neighbour;
        IF v_swept > v_now THEN LEAVE sweep; END IF;
        IF v_swept IS NOT NULL THEN
          CALL {walk}(v_other, p_bucket, v_now, 0, p_inbox, TRUE, v_grace_ends = 0, v_used, v_front, v_swept, v_is_stale, v_pushes);
          DELETE FROM {claims} WHERE id = v_neighbour AND token = 0 AND expires <= v_now;
        END IF;
      END WHILE;
    END IF;
  END;
  IF v_reply IS NULL AND v_token > 0 THEN
    SET v_reply = CONCAT(IF(v_is_recalled, 'r ', 'h '), v_token, ' ', v_count, ' ', (v_expires - v_now) DIV 1000, ' ', v_now DIV 1000);
  ELSEIF v_reply IS NULL THEN
    SET v_next = LEAST(COALESCE(v_next, v_expires), v_expires, IF(v_grace_ends > 0, v_grace_ends, v_expires)),
      v_reply = CONCAT(IF(v_grace_ends > 0, 'w ', 'q '), (v_expires - v_now) DIV 1000, ' ', GREATEST((v_next - v_now) DIV 1000, 1), ' ',
        v_now DIV 1000, IF(v_grace_ends > 0, '', CONCAT(' ', v_ahead)));
  END IF;
  IF v_grace_ends > 0 AND LEFT(v_reply, 1) IN ('h', 'r', 'w') THEN SET v_reply = CONCAT(v_reply, ' ', (v_grace_ends + 999) DIV 1000); END IF;
  SELECT v_reply AS reply;
END
