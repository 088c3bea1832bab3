/* purge_tombstones.sql — deletes tombstones of a bucket that have expired. Calls that write one do so, and releases
   that leave the bucket without claims: as long as it has tombstones they take the long way, so those of a burst go
   although no other burst follows. The caller has locked the bucket.
   in    p_bucket, p_now
   cost  at most 32 rows, one index probe each */
create procedure {purge_tombstones}(in p_bucket smallint, in p_now bigint)
sql security invoker modifies sql data comment '{revision}'
begin
  declare v_deletions int default 0;
  declare v_id varbinary(64);
  -- found by a plain read and deleted by id: a range of an index would lock the rows of the next bucket as well
  batch: while v_deletions < 32 do
    set v_id = null, v_deletions = v_deletions + 1;
    select id into v_id from {tombstones} force index (by_bucket)
      where bucket = p_bucket and expires <= p_now order by expires limit 1;
    if v_id is null then leave batch; end if;
    delete from {tombstones} where id = v_id;
  end while;
end
