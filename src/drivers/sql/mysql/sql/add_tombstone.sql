/* add_tombstone.sql — records that a claim has ended, so that a late `claim` call does not queue it again; the first
   reason stays. Deletes some of the bucket's tombstones that have expired. The caller has locked the bucket.
   in    p_id, p_bucket, p_reason; p_now; p_ttl: the claim's, in microseconds. It stays for so long, and no call waits
         for a lock for longer than the 60 s that it stays at least
   cost  that of purge_tombstones.sql, and an index probe */
create procedure {add_tombstone}(
  in p_id varbinary(64), in p_bucket smallint, in p_reason varchar(16) character set ascii, in p_now bigint, in p_ttl bigint
)
sql security invoker modifies sql data comment '{revision}'
begin
  declare v_expires bigint default p_now + greatest(p_ttl, 60000000);
  call {purge_tombstones}(p_bucket, p_now);
  insert into {tombstones} (id, bucket, reason, expires) values (p_id, p_bucket, p_reason, v_expires)
    on duplicate key update expires = v_expires;
end
