/* refuse_session.sql — says why this session must not write leases: called where {lease_now} is NULL. Another user of the pool has changed
   its settings. */
CREATE PROCEDURE {refuse_session}()
SQL SECURITY INVOKER NO SQL COMMENT '{revision}'
BEGIN
  IF NOT @@session.sql_log_bin AND @@global.log_bin THEN
    SIGNAL SQLSTATE 'HF001' SET MESSAGE_TEXT = 'this session does not write to the binary log (SET sql_log_bin): replicas would lack its grants';
  END IF;
  SIGNAL SQLSTATE 'HF001' SET MESSAGE_TEXT = 'the clock of this session was set (SET timestamp): leases would end too early or never';
END
