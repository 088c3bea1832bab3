/* lock_buckets.sql — locks bucket rows until the transaction ends: each call locks them in ascending order, one row a statement,
   so no two calls wait for each other (I4).
   in    p_rows: records of p_width characters that begin with a bucket in 4 digits, in ascending order
   out   o_now: the time in microseconds, read after all locks: a call that waited must not use an older time
   cost  one index probe a bucket */
CREATE PROCEDURE {lock_buckets}(IN p_rows LONGBLOB, IN p_width INT, OUT o_now BIGINT)
SQL SECURITY INVOKER READS SQL DATA COMMENT '{revision}'
BEGIN
  DECLARE v_at INT DEFAULT 1;
  DECLARE v_bucket, v_previous SMALLINT DEFAULT -1;
  DECLARE v_last BIGINT;
  WHILE v_at < LENGTH(p_rows) DO
    SET v_bucket = CAST(SUBSTRING(p_rows, v_at, 4) AS SIGNED);
    IF v_bucket <> v_previous THEN
      SELECT last_token INTO v_last FROM {buckets} WHERE bucket = v_bucket FOR UPDATE;
      SET v_previous = v_bucket;
    END IF;
    SET v_at = v_at + p_width;
  END WHILE;
  SET o_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  IF ABS(TIMESTAMPDIFF(SECOND, NOW(), SYSDATE())) > 60 THEN
    SIGNAL SQLSTATE 'HF001' SET MESSAGE_TEXT = 'the clock of this session was set (SET timestamp): leases would end too early or never';
  END IF;
END
