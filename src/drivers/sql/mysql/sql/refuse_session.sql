/* refuse_session.sql — says why this session must not write leases: called where {lease_now} is NULL. Another user of the pool has changed
   its settings. */
create procedure {refuse_session}()
sql security invoker no sql comment '{revision}'
begin
  if not @@session.sql_log_bin and @@global.log_bin then
    signal sqlstate 'HF001' set message_text = 'this session does not write to the binary log (SET sql_log_bin): replicas would lack its grants';
  end if;
  signal sqlstate 'HF001' set message_text = 'the clock of this session was set (SET timestamp): leases would end too early or never';
end
