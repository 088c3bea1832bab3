/* check_identity.sql — compares the database with the one that the identity row was written in (option guardDataLoss), and begins
   a grace period if data may have been lost: nothing is granted in it.
   in    p_max_ttl: the caller's longest ttl in ms; p_now: the time; p_may_write: FALSE:
         only look; p_is_lost: the caller knows of a loss
   out   o_grace_ends: when the grace period ends, 0: none is running, NULL: the row has to be written, and p_may_write is FALSE
   cost  one row, and an entry of the information schema

   The row has the time at which the claims table was created, which changes when a dump is restored, and the last UUID_SHORT() that
   was seen. That one counts up while a server runs, from the second of its start and its server_id: so a leap, or a step back,
   means another run or another server.

   Invariants
   - A period lasts for the longest ttl from the moment at which the loss was noticed: so long a live holder may need until it
     renews its claim and finds that it must restore it.
   - It is never made shorter; a caller with a longer ttl makes it longer.
   - The caller has read {claims} in its transaction: the table cannot be dropped between this look and the decision.
   - The row is locked after the last bucket, so no two calls wait for each other; before that p_may_write is FALSE, and who gets NULL
     grants nothing. */
CREATE PROCEDURE {check_identity}(IN p_max_ttl BIGINT, IN p_now BIGINT, IN p_may_write BOOLEAN, IN p_is_lost BOOLEAN, OUT o_grace_ends BIGINT)
SQL SECURITY INVOKER MODIFIES SQL DATA COMMENT '{revision}'
BEGIN
  DECLARE v_created, v_table_created VARCHAR(32) CHARACTER SET ascii DEFAULT '';
  DECLARE v_sequence, v_next BIGINT UNSIGNED;
  DECLARE v_begins, v_ends, v_now, v_least BIGINT;
  DECLARE v_is_same BOOLEAN;
  SELECT UNIX_TIMESTAMP(CREATE_TIME) INTO v_table_created FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{claims_name}';
  SELECT created, sequence, grace_begins, grace_ends INTO v_created, v_sequence, v_begins, v_ends FROM {identity} WHERE only_row = 1;
  -- read after the row, so it is higher than what any other call has written there
  SET v_next = UUID_SHORT();
  SET v_is_same = COALESCE(v_created = v_table_created AND v_next BETWEEN v_sequence + 1 AND v_sequence + 8388608, FALSE);
  SET o_grace_ends = NULL;
  -- the row is written again long before the tolerance is used up
  IF v_is_same AND (NOT p_may_write OR v_next <= v_sequence + 1048576) THEN
    IF v_ends <= p_now AND NOT p_is_lost THEN
      SET o_grace_ends = 0;
    ELSEIF v_ends > p_now AND v_begins <= p_now AND v_ends >= v_begins + p_max_ttl * 1000 THEN
      SET o_grace_ends = v_ends;
    END IF;
  END IF;
  IF o_grace_ends IS NULL AND p_may_write THEN
    SET v_sequence = NULL;
    SELECT created, sequence, grace_begins, grace_ends INTO v_created, v_sequence, v_begins, v_ends
      FROM {identity} WHERE only_row = 1 FOR UPDATE;
    IF v_sequence IS NULL THEN
      SIGNAL SQLSTATE '42S02' SET MYSQL_ERRNO = 1146, MESSAGE_TEXT = 'a row of the identity table is missing';
    END IF;
    SET v_next = UUID_SHORT(), v_now = {now};
    SET v_is_same = v_created = v_table_created AND v_next BETWEEN v_sequence + 1 AND v_sequence + 8388608;
    SET v_least = p_max_ttl * 1000;
    IF v_is_same AND NOT p_is_lost AND v_ends <= v_now THEN
      SET o_grace_ends = 0;
    ELSEIF v_is_same AND v_ends > v_now AND v_begins <= v_now THEN
      SET v_ends = GREATEST(v_ends, v_begins + v_least), o_grace_ends = v_ends;
    ELSE
      -- after a step back of the clock an earlier period has no more left than its length
      SET v_ends = GREATEST(v_now + v_least, LEAST(v_ends, v_now + v_ends - v_begins)), v_begins = v_now, o_grace_ends = v_ends;
    END IF;
    UPDATE {identity} SET created = v_table_created, sequence = v_next, grace_begins = v_begins, grace_ends = v_ends WHERE only_row = 1;
  END IF;
END
