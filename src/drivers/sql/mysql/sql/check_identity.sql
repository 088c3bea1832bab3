/* check_identity.sql — compares the database with the one that the identity row was written in (option guardDataLoss),
   and begins a grace period if data may have been lost: nothing is granted in it.
   in    p_max_ttl: the caller's longest ttl in ms; p_now: the time; p_may_write: FALSE:
         only look; p_is_lost: the caller knows of a loss
   out   o_grace_ends: when the grace period ends, 0: none is running, NULL: the row has to be written, and p_may_write
         is FALSE
   cost  one row, and an entry of the information schema

   The row has the time at which the claims table was created, which changes when a dump is restored, and the last
   UUID_SHORT() that was seen. That one counts up while a server runs, from the second of its start and its server_id:
   so a leap, or a step back, means another run or another server.

   Invariants
   - A period lasts for the longest ttl from the moment at which the loss was noticed: so long a live holder may need
     until it renews its claim and finds that it must restore it.
   - It is never made shorter; a caller with a longer ttl makes it longer.
   - The caller has read {claims} in its transaction: the table cannot be dropped between this look and the decision.
   - The row is locked after the last bucket, so no two calls wait for each other; before that p_may_write is FALSE, and
     who gets NULL grants nothing. */
create procedure {check_identity}(in p_max_ttl bigint, in p_now bigint, in p_may_write boolean, in p_is_lost boolean, out o_grace_ends bigint)
sql security invoker modifies sql data comment '{revision}'
begin
  declare v_created, v_table_created varchar(32) character set ascii default '';
  declare v_sequence, v_next bigint unsigned;
  declare v_begins, v_ends, v_now, v_least bigint;
  declare v_is_same boolean;
  select unix_timestamp(create_time) into v_table_created from information_schema.tables where table_schema = database() and table_name = '{claims_name}';
  select created, sequence, grace_begins, grace_ends into v_created, v_sequence, v_begins, v_ends from {identity} where only_row = 1;
  -- read after the row, so it is higher than what any other call has written there
  set v_next = uuid_short();
  set v_is_same = coalesce(v_created = v_table_created and v_next between v_sequence + 1 and v_sequence + 8388608, false);
  set o_grace_ends = null;
  -- the row is written again long before the tolerance is used up
  if v_is_same and (not p_may_write or v_next <= v_sequence + 1048576) then
    if v_ends <= p_now and not p_is_lost then
      set o_grace_ends = 0;
    elseif v_ends > p_now and v_begins <= p_now and v_ends >= v_begins + p_max_ttl * 1000 then
      set o_grace_ends = v_ends;
    end if;
  end if;
  if o_grace_ends is null and p_may_write then
    set v_sequence = null;
    select created, sequence, grace_begins, grace_ends into v_created, v_sequence, v_begins, v_ends
      from {identity} where only_row = 1 for update;
    if v_sequence is null then
      signal sqlstate '42S02' set mysql_errno = 1146, message_text = 'a row of the identity table is missing';
    end if;
    set v_next = uuid_short(), v_now = {now};
    set v_is_same = v_created = v_table_created and v_next between v_sequence + 1 and v_sequence + 8388608;
    set v_least = p_max_ttl * 1000;
    if v_is_same and not p_is_lost and v_ends <= v_now then
      set o_grace_ends = 0;
    elseif v_is_same and v_ends > v_now and v_begins <= v_now then
      set v_ends = greatest(v_ends, v_begins + v_least), o_grace_ends = v_ends;
    else
      -- after a step back of the clock an earlier period has no more left than its length
      set v_ends = greatest(v_now + v_least, least(v_ends, v_now + v_ends - v_begins)), v_begins = v_now, o_grace_ends = v_ends;
    end if;
    update {identity} set created = v_table_created, sequence = v_next, grace_begins = v_begins, grace_ends = v_ends where only_row = 1;
  end if;
end
