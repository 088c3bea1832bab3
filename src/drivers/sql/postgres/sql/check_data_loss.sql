/* check_data_loss.sql — looks whether data was lost, and begins a grace period then (option guardDataLoss). When a
   driver opens.
   Parameters  the caller's longest ttl in ms
   Returns     how many ms are left of a grace period, 0 if none is running */
create or replace function {check_data_loss}(p_max_ttl bigint) returns bigint language plpgsql {settings} as $body$
declare
  v_now bigint := {read_clock}();
begin
  return greatest(coalesce({read_grace}(p_max_ttl, v_now), {start_grace}(p_max_ttl, false)) - v_now + 999, 0) / 1000;
end $body$;
