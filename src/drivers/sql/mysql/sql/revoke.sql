/* revoke.sql — revokes a held claim: from now on it is answered "n revoked" and keeps its place until it is released or
   its lease ends; with p_at_once it is removed.
   in       p_inbox: the caller's; p_lock_wait: the longest wait for a lock, in seconds; p_key, p_bucket; p_token: any
            of the claim's tokens; p_max_ttl: the longest ttl in ms, 0: guardDataLoss is off
   returns  reply: "1" if there was such a claim, else "0"; then pushes as in release.sql, and "<id>" if the claim has
            the caller's inbox
   cost     O(admitted + expired rows of the key) */
create procedure {revoke}(
  in p_inbox varbinary(64), in p_lock_wait int, in p_key varbinary(512), in p_bucket smallint, in p_token bigint, in p_at_once boolean,
  in p_max_ttl bigint
)
sql security invoker modifies sql data comment '{revision}'
begin
  declare v_id, v_inbox varbinary(64);
  declare v_permits, v_ttl, v_now, v_last, v_used, v_front, v_next bigint;
  declare v_is_stale boolean;
  declare v_grace_ends bigint default 0;
  declare v_pushes longblob default '';
  {begin_transaction}
    call {lock_bucket}(p_bucket, p_lock_wait, v_last, v_now);
    select id, inbox, permits, ttl * 1000 into v_id, v_inbox, v_permits, v_ttl from {claims} force index (by_key)
      where `key` = p_key and token > 0 and p_token between token and token + token_count - 1 and expires > v_now
        and (p_at_once or state <> 'r')
      order by arrival limit 1;
    if v_id is not null and p_at_once then
      delete from {claims} where id = v_id;
      call {add_tombstone}(v_id, p_bucket, 'revoked', v_now, v_ttl);
      if p_max_ttl > 0 then call {check_identity}(p_max_ttl, v_now, true, false, v_grace_ends); end if;
      call {walk}(p_key, p_bucket, v_now, v_permits, p_inbox, true, v_grace_ends = 0, v_used, v_front, v_next, v_is_stale, v_pushes);
    elseif v_id is not null then
      update {claims} set state = 'r' where id = v_id;
    end if;
  {end_transaction}
  if v_inbox = p_inbox then set v_pushes = concat('\n', v_id, v_pushes); end if;
  select convert(concat(if(v_id is null, '0', '1'), v_pushes) using ascii) as reply;
end
