/* lock_bucket.sql — locks the row of a bucket until the transaction ends, and moves the claim that the row itself has into {claims}: all
   that follows finds claims there only. A procedure that locks several does so in ascending order, so no two calls wait for
   each other (I4).
   in    p_bucket; p_lock_wait: the longest wait, in seconds
   out   o_last: the highest token of the bucket; o_now: the time in microseconds, read after the lock: a call that waited must
         not use an older time
   cost  one index probe; two if the row is locked; two rows if the bucket was free or had one claim */
CREATE PROCEDURE {lock_bucket}(IN p_bucket SMALLINT, IN p_lock_wait INT, OUT o_last BIGINT, OUT o_now BIGINT)
SQL SECURITY INVOKER MODIFIES SQL DATA COMMENT '{revision}'
BEGIN
  DECLARE v_lock_wait INT;
  DECLARE v_form VARCHAR(5) CHARACTER SET ascii;
  SELECT last_token, form INTO o_last, v_form FROM {buckets} WHERE bucket = p_bucket FOR UPDATE SKIP LOCKED;
  IF o_last IS NULL THEN
    BEGIN
      DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        SET SESSION innodb_lock_wait_timeout = v_lock_wait;
        RESIGNAL;
      END;
      SET v_lock_wait = @@session.innodb_lock_wait_timeout;
      SET SESSION innodb_lock_wait_timeout = p_lock_wait;
      SELECT last_token, form INTO o_last, v_form FROM {buckets} WHERE bucket = p_bucket FOR UPDATE;
      SET SESSION innodb_lock_wait_timeout = v_lock_wait;
    END;
    -- without its row a bucket has no lock, and every claim of its keys would be granted
    IF o_last IS NULL THEN
      SIGNAL SQLSTATE '42S02' SET MYSQL_ERRNO = 1146, MESSAGE_TEXT = 'a row of the buckets table is missing';
    END IF;
  END IF;
  SET o_now = {lease_now};
  IF o_now IS NULL THEN CALL {refuse_session}(); END IF;
  IF v_form = 'lone' THEN
    INSERT INTO {claims} (id, `key`, arrival, bucket, permits, permit_limit, state, ttl, expires, token, token_count,
      floor, inbox, wait, label, created, granted)
      SELECT id, `key`, 1, bucket, permits, permit_limit, 'o', ttl, expires, last_token - token_count + 1, token_count,
        floor, inbox, wait, label, created, created FROM {buckets} WHERE bucket = p_bucket;
    UPDATE {buckets} SET form = 'table', used = permits, waits_from = 2, next_expiry = expires, counted = created WHERE bucket = p_bucket;
  ELSEIF v_form = 'free' THEN
    -- from now on only a release that leaves nothing behind makes the bucket free
    UPDATE {buckets} SET form = 'table' WHERE bucket = p_bucket;
  END IF;
END
