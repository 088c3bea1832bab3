/* release.sql — removes claims, waiting or held, and grants what is admitted now.
   in       p_inbox: the caller's; p_lock_wait: the longest wait for a lock, in seconds; p_rows: the claims in order of
            their buckets (row-format.ts), with a flag: a `claim` call may still arrive; p_max_ttl: the longest ttl in
            ms, 0: guardDataLoss is off
   returns  reply: "1" for each claim that was there, else "0"; then for each granted row with the caller's inbox a line
            with "<id> <token> <tokens> <remaining ms>". No result at all: every claim was there, and nothing follows
   cost     one claim, and no other of its bucket: 1 index probe, 1 row; else that of release_rows.sql */
create procedure {release}(in p_inbox varbinary(64), in p_lock_wait int, in p_rows longblob, in p_max_ttl bigint)
sql security invoker modifies sql data comment '{revision}'
begin
  declare v_now bigint;
  declare v_row varbinary({row_width}) default left(p_rows, {row_width});
  declare v_bucket smallint;
  declare v_id varbinary(64);
  declare v_is_released boolean default false;
  {begin_transaction}
    -- Most calls release one claim that has no other claim in its bucket, so no claim waits for it. One statement is
    -- enough: the update locks the row of the bucket, checks that the claim is in it, and removes it
    if p_max_ttl = 0 and length(p_rows) = {row_width} and not {row_flag} then
      -- before the lock: a lease that ended during a wait for it counts as released. NULL in a session that lock_bucket
      -- refuses, so no row is found
      set v_now = {lease_now}, v_bucket = {row_bucket}, v_id = {row_id};
      update {buckets} set form = 'free' where bucket = v_bucket and form = 'lone' and id = v_id and expires > v_now;
      set v_is_released = row_count() = 1;
    end if;
    if not v_is_released then {row_settings} call {release_rows}(p_inbox, p_lock_wait, p_rows, p_max_ttl); end if;
  {end_transaction}
end
