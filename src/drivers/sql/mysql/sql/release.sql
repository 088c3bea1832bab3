/* release.sql — removes claims, waiting or held, and grants what is admitted now.
   in       p_inbox: the caller's; p_lock_wait: the longest wait for a lock, in seconds; p_rows: the claims in order of their
            buckets (row-format.ts), with a flag: a `claim` call may still arrive; p_max_ttl: the longest ttl in ms, 0: guardDataLoss is off
   returns  reply: "1" for each claim that was there, else "0"; then for each granted row with the caller's inbox a line with
            "<id> <token> <tokens> <remaining ms>". No result at all: every claim was there, and nothing follows
   cost     one claim, and no other of its bucket: 1 index probe, 1 row; else that of release_rows.sql */
CREATE PROCEDURE {release}(IN p_inbox VARBINARY(64), IN p_lock_wait INT, IN p_rows LONGBLOB, IN p_max_ttl BIGINT)
SQL SECURITY INVOKER MODIFIES SQL DATA COMMENT '{revision}'
BEGIN
  DECLARE v_now BIGINT;
  DECLARE v_row VARBINARY({row_width}) DEFAULT LEFT(p_rows, {row_width});
  DECLARE v_bucket SMALLINT;
  DECLARE v_id VARBINARY(64);
  DECLARE v_is_released BOOLEAN DEFAULT FALSE;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION READ WRITE;
  BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    -- Most calls release one claim that has no other claim in its bucket, so no claim waits for it. One statement is enough: the update
    -- locks the row of the bucket, checks that the claim is in it, and removes it
    IF p_max_ttl = 0 AND LENGTH(p_rows) = {row_width} AND NOT {row_flag} THEN
      -- before the lock: a lease that ended during a wait for it counts as released. NULL in a session that lock_bucket refuses, so no row is found
      SET v_now = {lease_now}, v_bucket = {row_bucket}, v_id = {row_id};
      /*M! SET STATEMENT innodb_lock_wait_timeout = p_lock_wait FOR */
      UPDATE {buckets} SET form = 'free' WHERE bucket = v_bucket AND form = 'lone' AND id = v_id AND expires > v_now;
      SET v_is_released = ROW_COUNT() = 1;
    END IF;
    IF NOT v_is_released THEN CALL {release_rows}(p_inbox, p_lock_wait, p_rows, p_max_ttl); END IF;
    COMMIT AND NO CHAIN NO RELEASE;
  END;
END
