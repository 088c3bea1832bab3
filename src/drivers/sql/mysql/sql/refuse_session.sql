/* refuse_session.sql — says why this session must not write leases: called where {lease_now} is NULL. The server has
   ceased to be the primary, or another user of the pool has changed the settings of the session. */
create procedure {refuse_session}()
sql security invoker no sql comment '{revision}'
begin
  -- the error that the server itself sends to accounts that read_only binds: the client leaves the server then
  if {is_read_only} then
    signal sqlstate 'HY000' set mysql_errno = 1290, message_text = 'the server runs with read_only';
  end if;
  if not @@session.sql_log_bin and @@global.log_bin then
    signal sqlstate 'HF001' set message_text = 'this session does not write to the binary log (SET sql_log_bin): replicas would lack its grants';
  end if;
  signal sqlstate 'HF001' set message_text = 'the clock of this session was set (SET timestamp): leases would end too early or never';
end
