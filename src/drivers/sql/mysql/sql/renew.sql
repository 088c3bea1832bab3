/* renew.sql — restarts the leases of claims, held and waiting alike, and answers for each. Most calls only ask whether
   a claim still waits, so what the rows say is the answer, without a lock, if the lease was restarted lately and
   nothing in the queue is to be done. The first claim for which that is not so, and those behind it, are answered under
   the locks of their buckets: then there is always an answer.
   in       p_inbox: the caller's; p_lock_wait: the longest wait for a lock, in seconds; p_rows: the claims in order of
            their buckets (row-format.ts), with a flag: it asks to be recalled; p_max_ttl: the longest ttl in ms, 0:
            guardDataLoss is off
   returns  replies: for each claim "<id> <reply>" on a line of its own, in any order; replies as in claim.sql, or
            "r ..." instead of "h ...": held, and recalled, since another claim waits;
            "b <end in ms>": unknown, or expired, in a grace period: if it was held, the caller may restore it
   cost     O(admitted + expired rows of each key); an index probe more for each held claim that asks to be recalled */
create procedure {renew}(in p_inbox varbinary(64), in p_lock_wait int, in p_rows longblob, in p_max_ttl bigint)
sql security invoker modifies sql data comment '{revision}'
begin
  -- long batches: the reply grows by parts, since each CONCAT copies what it extends
  declare v_replies, v_part longblob default '';
  declare v_reply varchar(200) character set ascii;
  declare v_pushes longblob default '';
  declare v_suffix varchar(32) character set ascii default '';
  declare v_id varbinary(64);
  declare v_key, v_walked varbinary(512);
  declare v_state char(1) character set ascii;
  declare v_row varbinary({row_width});
  declare v_at int default 1;
  declare v_bucket, v_locked smallint default -1;
  declare v_is_locked, v_is_stale boolean default false;
  declare v_last, v_now, v_ttl, v_expires, v_arrival, v_token, v_used, v_front, v_next, v_freed bigint;
  declare v_grace_ends bigint default 0;
  declare v_count int;
  declare v_recall boolean;
  {begin_transaction}
    set v_now = {lease_now};
    if v_now is null then call {refuse_session}(); end if;
    if p_max_ttl > 0 then
      select id into v_id from {claims} limit 1;
      call {check_identity}(p_max_ttl, v_now, false, false, v_grace_ends);
      if v_grace_ends is null or v_grace_ends > 0 then
        -- nothing is granted; a loss is noted below
        set v_is_locked = true, v_grace_ends = coalesce(v_grace_ends, v_now + p_max_ttl * 1000),
          v_suffix = concat(' ', (v_grace_ends + 999) div 1000);
      end if;
    end if;
    while v_at < length(p_rows) do
      set v_row = substring(p_rows, v_at, {row_width}), v_at = v_at + {row_width}, v_bucket = {row_bucket}, v_id = {row_id},
        v_recall = {row_flag}, v_reply = null;
      repeat
        set v_state = null;
        if v_is_locked and v_bucket <> v_locked then
          call {lock_bucket}(v_bucket, p_lock_wait, v_last, v_now);
          set v_locked = v_bucket;
        end if;
        select `key`, arrival, state, ttl * 1000, least(expires, v_now + ttl * 1000), token, token_count,
          if(token > 0, permits, 0)
          into v_key, v_arrival, v_state, v_ttl, v_expires, v_token, v_count, v_freed from {claims} where id = v_id;
        if v_state is null then
          -- without the lock it may be in the row of its bucket
          if v_is_locked then
            set v_reply = coalesce((select concat('n ', reason) from {tombstones} where id = v_id and expires > v_now),
              if(v_grace_ends > 0, concat('b', v_suffix), 'n'));
          end if;
        elseif v_state = 'r' then
          set v_reply = 'n revoked';
        elseif v_expires <= v_now and v_grace_ends > 0 and v_state = 'o' then
          -- the last renewals may be lost: the holder may still restore it
          delete from {claims} where id = v_id;
          set v_reply = concat('b', v_suffix);
        elseif v_expires <= v_now and v_is_locked then
          delete from {claims} where id = v_id;
          if v_state = 'd' then call {add_tombstone}(v_id, v_bucket, 'expired', v_now, v_ttl); end if;
          -- what it kept waiting is granted now, and not at the next recheck of a process that may be gone
          call {walk}(v_key, v_bucket, v_now, v_freed, p_inbox, v_is_locked, v_grace_ends = 0, v_used, v_front, v_next, v_is_stale, v_pushes);
          set v_reply = 'n expired', v_walked = v_key;
        elseif v_expires > v_now and (v_is_locked or (v_expires - v_now) * 8 > v_ttl * 7) then
          if v_is_locked then
            set v_expires = v_now + v_ttl;
            update {claims} set expires = v_expires, inbox = p_inbox where id = v_id;
          end if;
          if v_token = 0 and (v_walked is null or v_walked <> v_key) then
            call {walk}(v_key, v_bucket, v_now, 0, p_inbox, v_is_locked, v_grace_ends = 0, v_used, v_front, v_next, v_is_stale, v_pushes);
            set v_walked = v_key;
          end if;
          if v_token = 0 and v_is_locked then select token into v_token from {claims} where id = v_id; end if;
          if v_token > 0 then
            -- what waits is behind all that is held
            if v_recall then
              select token = 0 into v_recall from {claims} force index (by_key) where `key` = v_key order by arrival desc limit 1;
            end if;
            set v_reply = concat(if(v_recall and v_state = 'o', 'r ', 'h '), v_token, ' ', v_count, ' ', (v_expires - v_now) div 1000, ' ', v_now div 1000, v_suffix);
          elseif v_is_locked or (not v_is_stale and v_arrival >= v_front) then
            set v_reply = concat(if(v_grace_ends > 0, 'w ', 'q '), (v_expires - v_now) div 1000, ' ',
              greatest((least(v_next, v_expires, if(v_grace_ends > 0, v_grace_ends, v_expires)) - v_now) div 1000, 1), ' ',
              v_now div 1000, if(v_grace_ends > 0, v_suffix, concat(' ', v_arrival - v_front)));
          end if;
        end if;
        -- leases are restarted together: what one claim needs, those behind it often need as well
        if v_reply is null then set v_is_locked = true, v_walked = null; end if;
      until v_reply is not null end repeat;
      set v_part = concat(v_part, v_id, ' ', v_reply, '\n');
      if length(v_part) > 4000 then set v_replies = concat(v_replies, v_part), v_part = ''; end if;
    end while;
    if p_max_ttl > 0 and v_is_locked then call {check_identity}(p_max_ttl, v_now, true, false, v_grace_ends); end if;
  {end_transaction}
  select convert(concat(v_replies, v_part) using ascii) as replies;
end
