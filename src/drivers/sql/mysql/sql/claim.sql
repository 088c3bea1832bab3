/* claim.sql — queues a claim, or finds it by its id and restarts its lease, and answers whether it is held.
   in       p_inbox: the caller's; p_lock_wait: the longest wait for a lock, in seconds; the fields of the claim; p_wait: it
            waits if it must; p_recall: it asks to be recalled; p_max_ttl: the longest ttl in ms, 0: guardDataLoss is off
   returns  reply: "h <token> <tokens> <remaining ms> <store ms>" | the same with "r": held, and recalled | "q <remaining ms> <recheck ms> <store ms> <waiters ahead>" |
            "n [reason]" |
            "f": the floor is more than a day ahead of the clock, and would exhaust the bucket's tokens |
            "p <end in ms> <store ms>": not granted because of a grace period, in which "h" and "r" have its end as another field |
            "w <remaining ms> <recheck ms> <store ms> <end in ms>": waiting in a grace period
   cost     a bucket without claims: 1 index probe, 1 row; else that of claim_queued.sql */
CREATE PROCEDURE {claim}(
  IN p_inbox VARBINARY(64), IN p_lock_wait INT, IN p_id VARBINARY(64), IN p_key VARBINARY(512), IN p_bucket SMALLINT,
  IN p_permits INT, IN p_limit INT, IN p_ttl BIGINT, IN p_count INT, IN p_floor BIGINT, IN p_wait BOOLEAN,
  IN p_recall BOOLEAN, IN p_label VARBINARY(1024), IN p_max_ttl BIGINT
)
SQL SECURITY INVOKER MODIFIES SQL DATA COMMENT '{revision}'
BEGIN
  DECLARE v_now BIGINT;
  -- fails inside an open transaction, which is not ours to commit or to roll back, so this precedes the handler
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION READ WRITE;
  BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    -- before the lock: a lease that ends early by the time of a wait for it ends by the caller's clock, too, which began when it sent
    -- the call. NULL in a session that lock_bucket refuses, so no row is found
    SET v_now = {lease_now};
    -- Most claims find no other claim in their bucket. One statement is enough: the update locks the row of the bucket, checks that the
    -- bucket has no claim, and writes this one
    /*M! SET STATEMENT innodb_lock_wait_timeout = p_lock_wait FOR */
    UPDATE {buckets} SET last_token = LAST_INSERT_ID(GREATEST(last_token + 1, v_now)) + p_count - 1, form = 'lone', id = p_id, `key` = p_key,
        permits = p_permits, permit_limit = p_limit, ttl = p_ttl, expires = v_now + p_ttl * 1000, token_count = p_count,
        floor = p_floor, inbox = p_inbox, wait = p_wait, label = p_label, created = v_now
      WHERE bucket = p_bucket AND form = 'free' AND p_max_ttl = 0 AND p_floor <= v_now AND p_permits <= p_limit;
    IF ROW_COUNT() = 1 THEN
      -- the reply counts when the call has succeeded, so after the commit; the client decodes it while the log is flushed
      SELECT CONCAT('h ', LAST_INSERT_ID(), ' ', p_count, ' ', p_ttl, ' ', v_now DIV 1000) AS reply;
    ELSE
      CALL {claim_queued}(p_inbox, p_lock_wait, p_id, p_key, p_bucket, p_permits, p_limit, p_ttl, p_count, p_floor, p_wait, p_recall, p_label,
        p_max_ttl);
    END IF;
    COMMIT AND NO CHAIN NO RELEASE;
  END;
END
