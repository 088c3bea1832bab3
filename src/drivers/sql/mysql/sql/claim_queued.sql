/* claim_queued.sql — the part of claim.sql for every case: other claims of the bucket, a claim that is known, a grace
   period. The caller has begun the transaction, and commits it.
   in       as claim.sql
   returns  as claim.sql
   cost     O(admitted + expired rows of the key) */
create procedure {claim_queued}(
  in p_inbox varbinary(64), in p_lock_wait int, in p_id varbinary(64), in p_key varbinary(512), in p_bucket smallint,
  in p_permits int, in p_limit int, in p_ttl bigint, in p_count int, in p_floor bigint, in p_wait boolean,
  in p_recall boolean, in p_label varbinary(1024), in p_max_ttl bigint
)
sql security invoker modifies sql data comment '{revision}'
begin
  declare v_reply varchar(200) character set ascii;
  declare v_reason varchar(16) character set ascii;
  declare v_state char(1) character set ascii;
  declare v_neighbour varbinary(64);
  declare v_only, v_other varbinary(512);
  declare v_now, v_last, v_arrival, v_expires, v_used, v_front, v_next, v_swept, v_ahead, v_freed bigint;
  declare v_sweeps int;
  declare v_token bigint default 0;
  declare v_count int default p_count;
  declare v_is_stale, v_is_first boolean;
  declare v_is_recalled boolean default false;
  declare v_pushes longblob default '';
  declare v_grace_ends bigint default 0;
  call {lock_bucket}(p_bucket, p_lock_wait, v_last, v_now);
  decide: begin
    select reason into v_reason from {tombstones} where id = p_id and expires > v_now;
    if v_reason is not null then set v_reply = concat('n ', v_reason); leave decide; end if;
    -- the one key that has claims, NULL: there may be several
    select if(form = 'queue', `key`, null) into v_only from {buckets} where bucket = p_bucket;
    if v_only is null or v_only = p_key then select max(arrival) into v_arrival from {claims} where `key` = p_key; end if;
    if p_max_ttl > 0 then call {check_identity}(p_max_ttl, v_now, true, false, v_grace_ends); end if;
    if v_arrival is not null then
      select state, least(expires, v_now + ttl * 1000), if(token > 0, permits, 0) into v_state, v_expires, v_freed from {claims} where id = p_id;
      if v_state = 'r' then set v_reply = 'n revoked'; leave decide; end if;
      if v_expires <= v_now then
        delete from {claims} where id = p_id;
        if v_state = 'd' then call {add_tombstone}(p_id, p_bucket, 'expired', v_now, p_ttl * 1000); end if;
        call {walk}(p_key, p_bucket, v_now, v_freed, p_inbox, true, v_grace_ends = 0, v_used, v_front, v_next, v_is_stale, v_pushes);
        set v_reply = 'n expired';
        leave decide;
      end if;
      if v_state is not null then
        update {claims} set expires = v_now + ttl * 1000, inbox = p_inbox where id = p_id;
        call {walk}(p_key, p_bucket, v_now, 0, p_inbox, true, v_grace_ends = 0, v_used, v_front, v_next, v_is_stale, v_pushes);
        select token, token_count, v_now + ttl * 1000, arrival - coalesce(v_front, arrival) into v_token, v_count, v_expires, v_ahead
          from {claims} where id = p_id;
        -- what waits is behind all that is held
        if p_recall and v_state = 'o' then
          select token = 0 into v_is_recalled from {claims} force index (by_key) where `key` = p_key order by arrival desc limit 1;
        end if;
        leave decide;
      end if;
    end if;
    -- restates the floor rule
    if p_floor > greatest(v_last + 1, v_now + 86400000000) then set v_reply = 'f'; leave decide; end if;
    set v_used = 0, v_expires = v_now + p_ttl * 1000;
    if v_arrival is not null then
      call {walk}(p_key, p_bucket, v_now, 0, p_inbox, true, v_grace_ends = 0, v_used, v_front, v_next, v_is_stale, v_pushes);
      -- the walk may have granted tokens
      select last_token, greatest(v_arrival, if(used is not null and `key` = p_key, waits_from - 1, v_arrival)) into v_last, v_arrival
        from {buckets} where bucket = p_bucket;
    end if;
    set v_is_first = v_arrival is null, v_arrival = coalesce(v_arrival + 1, v_now), v_ahead = v_arrival - coalesce(v_front, v_arrival);
    -- restates the admission rule, and, below, restates the token rule
    if v_grace_ends = 0 and v_front is null and v_used + p_permits <= p_limit then
      set v_token = greatest(v_last + 1, p_floor, v_now);
      -- if another program has deleted the rows of the key, the numbers of the bucket's row are out of date. Without
      -- numbers `used` stays NULL
      update {buckets} set last_token = v_token + p_count - 1,
          used = if(`key` = p_key, if(v_is_first, null, used + p_permits), used),
          waits_from = if(`key` = p_key, v_arrival + 1, waits_from),
          next_expiry = if(`key` = p_key, least(next_expiry, v_expires), next_expiry)
        where bucket = p_bucket;
    elseif not p_wait then
      -- unknown is not busy: the holder may not have restored its claim yet
      set v_reply = if(v_grace_ends > 0 and v_used + p_permits <= p_limit,
        concat('p ', (v_grace_ends + 999) div 1000, ' ', v_now div 1000), 'n');
      leave decide;
    end if;
    if v_only = '' then
      update {buckets} set `key` = p_key, used = if(v_token > 0, p_permits, null), waits_from = v_arrival + 1, next_expiry = v_expires,
          counted = v_now
        where bucket = p_bucket;
    elseif v_only <> p_key then
      update {buckets} set form = 'table' where bucket = p_bucket;
    end if;
    insert into {claims} (id, `key`, arrival, bucket, permits, permit_limit, state, ttl, expires, token, token_count,
      floor, inbox, wait, label, created, granted) values (p_id, p_key, v_arrival, p_bucket, p_permits, p_limit,
      'o', p_ttl, v_expires, v_token, p_count, p_floor, p_inbox, p_wait, p_label, v_now, if(v_token > 0, v_now, null));
    -- rows of processes that died stay if their keys are not used again, and behind a claim that waits for long, where
    -- each walk ends. One claim in 16 removes those that follow its own row in the order of ids, up to the first live
    -- one, and after the last row the first ones
    if substring(p_id, 9, 1) < '4' then
      set v_neighbour = p_id, v_sweeps = 0;
      sweep: while v_sweeps < 32 do
        select coalesce(min(id), '') into v_neighbour from {claims} where bucket = p_bucket and id > v_neighbour;
        set v_swept = null, v_sweeps = v_sweeps + 1;
        select `key`, expires into v_other, v_swept from {claims} where id = v_neighbour;
        if v_swept > v_now then leave sweep; end if;
        if v_swept is not null then
          call {walk}(v_other, p_bucket, v_now, 0, p_inbox, true, v_grace_ends = 0, v_used, v_front, v_swept, v_is_stale, v_pushes);
          delete from {claims} where id = v_neighbour and token = 0 and expires <= v_now;
        end if;
      end while;
    end if;
  end;
  if v_reply is null and v_token > 0 then
    set v_reply = concat(if(v_is_recalled, 'r ', 'h '), v_token, ' ', v_count, ' ', (v_expires - v_now) div 1000, ' ', v_now div 1000);
  elseif v_reply is null then
    set v_next = least(coalesce(v_next, v_expires), v_expires, if(v_grace_ends > 0, v_grace_ends, v_expires)),
      v_reply = concat(if(v_grace_ends > 0, 'w ', 'q '), (v_expires - v_now) div 1000, ' ', greatest((v_next - v_now) div 1000, 1), ' ',
        v_now div 1000, if(v_grace_ends > 0, '', concat(' ', v_ahead)));
  end if;
  if v_grace_ends > 0 and left(v_reply, 1) in ('h', 'r', 'w') then set v_reply = concat(v_reply, ' ', (v_grace_ends + 999) div 1000); end if;
  select v_reply as reply;
end
