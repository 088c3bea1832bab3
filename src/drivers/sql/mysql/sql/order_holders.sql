/* order_holders.sql — after a claim was restored: ends held claims of the key that conflict, and puts the others in front, in order of
   their tokens. The caller has locked the bucket.
   in    p_key, p_bucket; p_now: the time
   cost  O(held claims) probes for each claim that ends or moves

   Invariants
   - In order of tokens each held claim fits beside those before it, as when it was granted. Claims that do not were not held at the
     same time: those with the lowest tokens had ended when the others were granted, and end here.
   - Held claims are in order of their tokens, and in front of all that wait. */
CREATE PROCEDURE {order_holders}(IN p_key VARBINARY(512), IN p_bucket SMALLINT, IN p_now BIGINT)
SQL SECURITY INVOKER MODIFIES SQL DATA COMMENT '{revision}'
BEGIN
  DECLARE v_id, v_first VARBINARY(64);
  DECLARE v_permits, v_limit BIGINT;
  DECLARE v_used, v_token, v_ttl, v_first_ttl, v_arrival, v_lowest, v_next BIGINT;
  conflicts: LOOP
    SET v_used = 0, v_token = 0, v_first = NULL;
    holders: LOOP
      SET v_id = NULL;
      SELECT id, permits, permit_limit, token, ttl * 1000 INTO v_id, v_permits, v_limit, v_token, v_ttl FROM {claims} FORCE INDEX (by_key)
        WHERE `key` = p_key AND token > v_token AND expires > p_now ORDER BY token LIMIT 1;
      IF v_id IS NULL THEN LEAVE conflicts; END IF;
      IF v_first IS NULL THEN SET v_first = v_id, v_first_ttl = v_ttl; END IF;
      SET v_used = v_used + v_permits;
      IF v_used > v_limit THEN LEAVE holders; END IF;
    END LOOP;
    DELETE FROM {claims} WHERE id = v_first;
    CALL {add_tombstone}(v_first, p_bucket, 'expired', p_now, v_first_ttl);
  END LOOP;
  SELECT MIN(arrival), MIN(IF(token = 0, arrival, NULL)) INTO v_lowest, v_next FROM {claims} FORCE INDEX (by_key) WHERE `key` = p_key;
  SET v_token = 9223372036854775807;
  moves: LOOP
    SET v_id = NULL;
    SELECT id, arrival, token INTO v_id, v_arrival, v_token FROM {claims} FORCE INDEX (by_key)
      WHERE `key` = p_key AND token > 0 AND token < v_token ORDER BY token DESC LIMIT 1;
    IF v_id IS NULL THEN LEAVE moves; END IF;
    IF v_arrival >= v_next THEN
      SET v_lowest = v_lowest - 1, v_next = v_lowest;
      UPDATE {claims} SET arrival = v_lowest WHERE id = v_id;
    ELSE
      SET v_next = v_arrival;
    END IF;
  END LOOP;
END
