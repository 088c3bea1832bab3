/* walk.sql — the admission rule: walks the queue of a key from its front, deletes expired rows and grants what fits.
   The only procedure that grants a claim that has waited.
   in      p_key, p_bucket; p_now: the time; p_freed: the permits of held rows that the caller has removed;
           p_inbox: the caller's; p_may_write: the caller's transaction has locked the bucket, which protects I1 and I2;
           p_may_grant: FALSE in a grace period after a loss of data
   out     o_used: permits of the admitted rows; o_front: arrival of the first row that does not fit, NULL: there is
           none; o_next: no lease of the rows that it looked at ends before, NULL: there are none; o_is_stale: without
           the lock: an expired row, or one to grant, may be there, so the rest is unknown
   in out  io_pushes: a push for each grant to a row with the caller's inbox, each on a line of its own
   cost    O(rows that are granted, and expired ones), an index probe each; O(admitted rows) once in each of their
           leases, and always while the bucket's row has the numbers of another key

   Invariant: the numbers are changed with each change of a held row, in the same transaction, but for leases that are
   renewed: they end later. They count for no longer than the earliest end, since the holder of that lease may be
   gone */
create procedure {walk}(
  in p_key varbinary(512), in p_bucket smallint, in p_now bigint, in p_freed bigint, in p_inbox varbinary(64), in p_may_write boolean,
  in p_may_grant boolean, out o_used bigint, out o_front bigint, out o_next bigint, out o_is_stale boolean, inout io_pushes longblob
)
sql security invoker modifies sql data comment '{revision}'
begin
  declare v_id, v_inbox varbinary(64);
  declare v_expires, v_token, v_floor, v_last bigint;
  -- below those of restored claims, which are in front of the queue
  declare v_arrival bigint default -4611686018427387904;
  declare v_permits, v_limit, v_count int;
  declare v_state char(1) character set ascii;
  declare v_ttl, v_front_expires bigint;
  -- those in the bucket's row (schema.sql): 'own': of this key; 'other': of another key; 'stale': they no longer count;
  -- 'none'
  declare v_numbers varchar(5) character set ascii;
  declare v_key varbinary(512);
  declare v_is_changed boolean default false;
  declare v_used, v_waits_from, v_next_expiry, v_counted bigint;
  set o_used = 0, o_front = null, o_next = null, o_is_stale = false;
  select `key`, used, waits_from, next_expiry, counted into v_key, v_used, v_waits_from, v_next_expiry, v_counted
    from {buckets} where bucket = p_bucket;
  -- after a loss of data the rows may be gone; before v_counted the clock has stepped back
  set v_numbers = case
    when v_used is null then 'none'
    when not p_may_grant or p_now < v_counted or p_now >= v_next_expiry then 'stale'
    when v_key = p_key then 'own'
    else 'other' end;
  if v_numbers = 'own' then
    set o_used = v_used - p_freed, o_next = v_next_expiry, v_arrival = v_waits_from - 1, v_is_changed = p_freed > 0;
  else
    -- a caller that has the bucket's lock reads all rows again, and writes the numbers
    set o_is_stale = v_numbers = 'stale' and v_key = p_key and not p_may_write, v_counted = p_now, v_waits_from = v_arrival;
  end if;
  rows_of_key: while not o_is_stale do
    set v_id = null;
    select id, arrival, expires, ttl * 1000, state, permits, permit_limit, token, token_count, floor, inbox
      into v_id, v_arrival, v_expires, v_ttl, v_state, v_permits, v_limit, v_token, v_count, v_floor, v_inbox
      from {claims} force index (by_key) where `key` = p_key and arrival > v_arrival order by arrival limit 1;
    if v_id is null then leave rows_of_key; end if;
    if v_expires <= p_now then
      if not p_may_write then set o_is_stale = true; leave rows_of_key; end if;
      delete from {claims} where id = v_id;
      if v_state <> 'o' then
        call {add_tombstone}(v_id, p_bucket, if(v_state = 'r', 'revoked', 'expired'), p_now, v_ttl);
      end if;
      iterate rows_of_key;
    end if;
    if v_expires > p_now + v_ttl then
      -- the clock has stepped back: else the row of a dead process would stay until the clock has caught up
      if not p_may_write then set o_is_stale = true; leave rows_of_key; end if;
      set v_expires = p_now + v_ttl;
      update {claims} set expires = v_expires where id = v_id;
    end if;
    -- restates the admission rule
    if o_used + v_permits > v_limit or (v_token = 0 and not p_may_grant) then
      set o_front = v_arrival, v_front_expires = v_expires;
      leave rows_of_key;
    end if;
    set o_next = least(coalesce(o_next, v_expires), v_expires), o_used = o_used + v_permits, v_waits_from = v_arrival + 1;
    if v_token = 0 then
      if not p_may_write then set o_is_stale = true; leave rows_of_key; end if;
      select last_token into v_last from {buckets} where bucket = p_bucket;
      -- restates the token rule
      set v_token = greatest(v_last + 1, v_floor, p_now);
      update {buckets} set last_token = v_token + v_count - 1 where bucket = p_bucket;
      update {claims} set token = v_token, granted = p_now where id = v_id;
      set v_is_changed = true;
      if v_inbox = p_inbox then
        set io_pushes = concat(io_pushes, '\n', v_id, ' ', v_token, ' ', v_count, ' ', (v_expires - p_now) div 1000);
      end if;
    end if;
  end while;
  -- the numbers of another key stay while they count
  if p_may_write and (v_numbers = 'stale' or v_numbers = 'none' and o_used > 0 or v_numbers = 'own' and v_is_changed) then
    update {buckets} set `key` = p_key, used = if(o_used > 0, o_used, null), waits_from = v_waits_from, next_expiry = coalesce(o_next, 0),
      counted = v_counted where bucket = p_bucket;
  end if;
  set o_next = least(coalesce(o_next, v_front_expires), coalesce(v_front_expires, o_next));
end
