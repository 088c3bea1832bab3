/* release_rows.sql — the part of release.sql for every case: several claims, a claim with others in its bucket, one
   that has ended. The caller has begun the transaction, and commits it.
   in       as release.sql
   returns  as release.sql
   cost     a walk (walk.sql) of each key, and a few index probes for each claim */
create procedure {release_rows}(in p_inbox varbinary(64), in p_lock_wait int, in p_rows longblob, in p_max_ttl bigint)
sql security invoker modifies sql data comment '{revision}'
begin
  declare v_flags varbinary(4000) default '';
  declare v_pushes longblob default '';
  declare v_row varbinary({row_width});
  declare v_id varbinary(64);
  declare v_key, v_touched varbinary(512);
  declare v_state char(1) character set ascii;
  declare v_at int default 1;
  declare v_bucket, v_locked smallint default -1;
  declare v_was_there, v_in_flight, v_is_stale, v_is_one_key boolean;
  declare v_may_grant boolean default true;
  declare v_grace_ends bigint;
  declare v_last, v_now, v_expires, v_behind, v_used, v_front, v_next, v_permits bigint;
  declare v_freed bigint default 0;
  while v_at < length(p_rows) do
    set v_row = substring(p_rows, v_at, {row_width}), v_at = v_at + {row_width}, v_bucket = {row_bucket}, v_id = {row_id},
      v_in_flight = {row_flag};
    if v_bucket <> v_locked then
      call {lock_bucket}(v_bucket, p_lock_wait, v_last, v_now);
      set v_locked = v_bucket, v_behind = null, v_is_one_key = false;
    end if;
    set v_state = null, v_permits = 0;
    select `key`, state, expires, if(token > 0, permits, 0) into v_key, v_state, v_expires, v_permits from {claims} where id = v_id;
    set v_freed = v_freed + v_permits, v_was_there = false;
    if v_state is not null then
      delete from {claims} where id = v_id;
      set v_touched = v_key, v_was_there = v_state <> 'r' and v_expires > v_now;
    end if;
    if v_in_flight or (v_state <> 'o' and v_expires > v_now) then
      call {add_tombstone}(v_id, v_bucket, if(v_state = 'r', 'revoked', 'released'), v_now, {row_ttl} * 1000);
    end if;
    set v_flags = concat(v_flags, if(v_was_there, '1', '0'));
    -- one walk for the releases of a key that follow each other
    if v_touched is not null and {row_ends_key} then
      if p_max_ttl > 0 then
        call {check_identity}(p_max_ttl, v_now, false, false, v_grace_ends);
        set v_may_grant = v_grace_ends <=> 0;
      end if;
      call {walk}(v_touched, v_bucket, v_now, v_freed, p_inbox, true, v_may_grant, v_used, v_front, v_next, v_is_stale, v_pushes);
      set v_behind = coalesce(v_front, nullif(v_used, 0)), v_touched = null, v_freed = 0;
      select form = 'queue' into v_is_one_key from {buckets} where bucket = v_bucket;
    end if;
    -- nothing follows that writes a claim or a tombstone of the bucket: if it has none, the next claim is alone in it.
    -- If all its claims have the key of the walk, which has found none, none is looked for: that visits deleted rows
    if {row_ends_bucket} and v_behind is null
      and (v_is_one_key or not exists (select 1 from {claims} where bucket = v_bucket))
    then
      call {purge_tombstones}(v_bucket, v_now);
      update {buckets} set `key` = '', used = null,
          form = if(p_max_ttl = 0 and not exists (select 1 from {tombstones} where bucket = v_bucket), 'free', 'queue')
        where bucket = v_bucket;
    end if;
  end while;
  -- a loss is noted after the last bucket is locked
  if not v_may_grant then call {check_identity}(p_max_ttl, v_now, true, false, v_grace_ends); end if;
  if v_pushes <> '' or locate('0', v_flags) > 0 then
    select convert(concat(v_flags, v_pushes) using ascii) as reply;
  end if;
end
