/* lock_bucket.sql — locks the row of a bucket until the transaction ends, and moves the claim that the row itself has
   into {claims}: all that follows finds claims there only. A procedure that locks several does so in ascending order,
   so no two calls wait for each other (I4).
   in    p_bucket; p_lock_wait: the longest wait, in seconds
   out   o_last: the highest token of the bucket; o_now: the time in microseconds, read after the lock: a call that
         waited must not use an older time
   cost  one index probe; two if the row is locked; two rows if the bucket was free or had one claim */
create procedure {lock_bucket}(in p_bucket smallint, in p_lock_wait int, out o_last bigint, out o_now bigint)
sql security invoker modifies sql data comment '{revision}'
begin
  declare v_lock_wait int;
  declare v_form varchar(5) character set ascii;
  select last_token, form into o_last, v_form from {buckets} where bucket = p_bucket for update skip locked;
  if o_last is null then
    begin
      declare exit handler for sqlexception begin
        set session innodb_lock_wait_timeout = v_lock_wait;
        resignal;
      end;
      set v_lock_wait = @@session.innodb_lock_wait_timeout;
      set session innodb_lock_wait_timeout = p_lock_wait;
      select last_token, form into o_last, v_form from {buckets} where bucket = p_bucket for update;
      set session innodb_lock_wait_timeout = v_lock_wait;
    end;
    -- without its row a bucket has no lock, and every claim of its keys would be granted
    if o_last is null then
      signal sqlstate '42S02' set mysql_errno = 1146, message_text = 'a row of the buckets table is missing';
    end if;
  end if;
  set o_now = {lease_now};
  if o_now is null then call {refuse_session}(); end if;
  if v_form = 'lone' then
    insert into {claims} (id, `key`, arrival, bucket, permits, permit_limit, state, ttl, expires, token, token_count,
      floor, inbox, wait, label, created, granted)
      select id, `key`, created, bucket, permits, permit_limit, 'o', ttl, expires, last_token - token_count + 1, token_count,
        floor, inbox, wait, label, created, created from {buckets} where bucket = p_bucket;
    update {buckets} set form = 'queue', used = permits, waits_from = created + 1, next_expiry = expires, counted = created
      where bucket = p_bucket;
  elseif v_form = 'free' then
    -- from now on only a release that leaves nothing behind makes the bucket free
    update {buckets} set form = 'queue', `key` = '' where bucket = p_bucket;
  end if;
end
