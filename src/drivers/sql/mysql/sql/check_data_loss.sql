/* check_data_loss.sql — looks whether data was lost, and begins a grace period then (option guardDataLoss). When a driver opens.
   in       p_max_ttl: the caller's longest ttl in ms
   returns  reply: how many ms are left of a grace period, 0: none is running */
CREATE PROCEDURE {check_data_loss}(IN p_max_ttl BIGINT)
SQL SECURITY INVOKER MODIFIES SQL DATA COMMENT '{revision}'
BEGIN
  DECLARE v_id VARBINARY(64);
  DECLARE v_now, v_grace_ends BIGINT;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION READ WRITE;
  BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    SET v_now = {now};
    SELECT id INTO v_id FROM {claims} LIMIT 1;
    CALL {check_identity}(p_max_ttl, v_now, TRUE, FALSE, v_grace_ends);
    COMMIT AND NO CHAIN NO RELEASE;
  END;
  SELECT CONVERT((GREATEST(v_grace_ends - v_now, 0) + 999) DIV 1000 USING ascii) AS reply;
END
