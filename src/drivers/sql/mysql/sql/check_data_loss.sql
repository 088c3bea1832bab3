/* check_data_loss.sql — looks whether data was lost, and begins a grace period then (option guardDataLoss). When a
   driver opens.
   in       p_max_ttl: the caller's longest ttl in ms
   returns  reply: how many ms are left of a grace period, 0: none is running */
create procedure {check_data_loss}(in p_max_ttl bigint)
sql security invoker modifies sql data comment '{revision}'
begin
  declare v_id varbinary(64);
  declare v_now, v_grace_ends bigint;
  {begin_transaction}
    set v_now = {now};
    select id into v_id from {claims} limit 1;
    call {check_identity}(p_max_ttl, v_now, true, false, v_grace_ends);
  {end_transaction}
  select convert((greatest(v_grace_ends - v_now, 0) + 999) div 1000 using ascii) as reply;
end
