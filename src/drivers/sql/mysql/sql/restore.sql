/* restore.sql — puts a claim back that was held when data was lost, with its token (option guardDataLoss). The caller
   knows that it held it, and that the lease had not ended: if no grace period is running, that proves a loss, and one
   begins. A claim that waits here is restored, too: its grant may be what was lost.
   in       p_inbox: the caller's; p_lock_wait: the longest wait for a lock, in seconds; p_max_ttl: the longest ttl in
            ms; the fields of the claim, and its token
   returns  reply: as claim.sql
   cost     that of order_holders.sql, which keeps conflicting claims apart (I1) */
create procedure {restore}(
  in p_inbox varbinary(64), in p_lock_wait int, in p_max_ttl bigint, in p_id varbinary(64), in p_key varbinary(512),
  in p_bucket smallint, in p_permits int, in p_limit int, in p_ttl bigint, in p_count int, in p_floor bigint, in p_wait boolean,
  in p_label varbinary(1024), in p_token bigint
)
sql security invoker modifies sql data comment '{revision}'
begin
  declare v_reason varchar(16) character set ascii;
  declare v_state char(1) character set ascii;
  declare v_now, v_last, v_grace_ends, v_arrival, v_expires bigint;
  declare v_token bigint default 0;
  declare v_count int;
  {begin_transaction}
    call {lock_bucket}(p_bucket, p_lock_wait, v_last, v_now);
    select token into v_token from {claims} where id = p_id;
    call {check_identity}(p_max_ttl, v_now, true, true, v_grace_ends);
    select reason into v_reason from {tombstones} where id = p_id and expires > v_now;
    set v_expires = v_now + p_ttl * 1000;
    if v_token > 0 then
      update {claims} set expires = v_expires, inbox = p_inbox where id = p_id and state <> 'r' and expires > v_now;
    -- restates the floor rule
    elseif v_reason is null and p_token <= greatest(v_last + 1, v_now + 86400000000) then
      delete from {claims} where id = p_id;
      select coalesce(min(arrival), 2) - 1 into v_arrival from {claims} force index (by_key) where `key` = p_key;
      insert into {claims} (id, `key`, arrival, bucket, permits, permit_limit, state, ttl, expires, token, token_count,
        floor, inbox, wait, label, created, granted) values (p_id, p_key, v_arrival, p_bucket, p_permits, p_limit, 'o', p_ttl,
        v_expires, p_token, p_count, p_floor, p_inbox, p_wait, p_label, v_now, v_now);
      update {buckets} set last_token = greatest(last_token, p_token + p_count - 1), form = 'table', used = null where bucket = p_bucket;
      call {order_holders}(p_key, p_bucket, v_now);
    end if;
    set v_token = 0;
    select state, token, token_count into v_state, v_token, v_count from {claims} where id = p_id and expires > v_now;
  {end_transaction}
  select case
    when v_state = 'r' then 'n revoked'
    when v_token > 0 then concat('h ', v_token, ' ', v_count, ' ', p_ttl, ' ', v_now div 1000, ' ', (v_grace_ends + 999) div 1000)
    when v_reason is not null then concat('n ', v_reason)
    else 'n'
  end as reply;
end
