/* detach.sql — detaches held claims: their leases run to the full ttl, or to p_left, and the way they end is kept as a
   tombstone.
   in       p_lock_wait: the longest wait for a lock, in seconds; p_left: milliseconds, NULL: the ttl; p_rows: the
            claims in order of their buckets (row-format.ts)
   returns  reply: "1" for each claim that was held, else "0"
   cost     an index probe a claim */
create procedure {detach}(in p_lock_wait int, in p_left bigint, in p_rows longblob)
sql security invoker modifies sql data comment '{revision}'
begin
  declare v_flags varbinary(4000) default '';
  declare v_id varbinary(64);
  declare v_row varbinary({row_width});
  declare v_at int default 1;
  declare v_bucket, v_locked smallint default -1;
  declare v_last, v_now, v_ttl bigint;
  {begin_transaction}
    while v_at < length(p_rows) do
      set v_row = substring(p_rows, v_at, {row_width}), v_at = v_at + {row_width}, v_bucket = {row_bucket}, v_id = {row_id}, v_ttl = null;
      if v_bucket <> v_locked then
        call {lock_bucket}(v_bucket, p_lock_wait, v_last, v_now);
        set v_locked = v_bucket;
      end if;
      select least(ttl, coalesce(p_left, ttl)) * 1000 into v_ttl from {claims}
        where id = v_id and token > 0 and state <> 'r' and expires > v_now;
      set v_flags = concat(v_flags, if(v_ttl is null, '0', '1'));
      if v_ttl is not null then
        update {claims} set state = 'd', expires = v_now + v_ttl where id = v_id;
        -- its lease may end earlier now
        update {buckets} set used = null where bucket = v_bucket;
      end if;
    end while;
  {end_transaction}
  select convert(v_flags using ascii) as reply;
end
