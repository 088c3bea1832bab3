/* lock_bucket.sql — locks the row of a bucket until the transaction ends. A procedure that locks several does so in ascending
   order, so no two calls wait for each other (I4).
   in    p_bucket; p_lock_wait: the longest wait, in seconds
   out   o_last: the highest token of the bucket; o_now: the time in microseconds, read after the lock: a call that waited must
         not use an older time
   cost  one index probe; two if the row is locked */
CREATE PROCEDURE {lock_bucket}(IN p_bucket SMALLINT, IN p_lock_wait INT, OUT o_last BIGINT, OUT o_now BIGINT)
SQL SECURITY INVOKER READS SQL DATA COMMENT '{revision}'
BEGIN
  DECLARE v_lock_wait INT;
  SELECT last_token INTO o_last FROM {buckets} WHERE bucket = p_bucket FOR UPDATE SKIP LOCKED;
  IF o_last IS NULL THEN
    BEGIN
      DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        SET SESSION innodb_lock_wait_timeout = v_lock_wait;
        RESIGNAL;
      END;
      SET v_lock_wait = @@session.innodb_lock_wait_timeout;
      SET SESSION innodb_lock_wait_timeout = p_lock_wait;
      SELECT last_token INTO o_last FROM {buckets} WHERE bucket = p_bucket FOR UPDATE;
      SET SESSION innodb_lock_wait_timeout = v_lock_wait;
    END;
    -- without its row a bucket has no lock, and every claim of its keys would be granted
    IF o_last IS NULL THEN
      SIGNAL SQLSTATE '42S02' SET MYSQL_ERRNO = 1146, MESSAGE_TEXT = 'a row of the buckets table is missing';
    END IF;
  END IF;
  SET o_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  IF ABS(TIMESTAMPDIFF(SECOND, NOW(), SYSDATE())) > 60 THEN
    SIGNAL SQLSTATE 'HF001' SET MESSAGE_TEXT = 'the clock of this session was set (SET timestamp): leases would end too early or never';
  END IF;
END
