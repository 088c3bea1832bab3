/* order_holders.sql — after a claim was restored: ends held claims of the key that conflict, and puts the others in
   front, in order of their tokens. The caller has locked the bucket.
   in    p_key, p_bucket; p_now: the time
   cost  O(held claims) probes for each claim that ends or moves

   Invariants
   - In order of tokens each held claim fits beside those before it, as when it was granted. Claims that do not were not
     held at the same time: those with the lowest tokens had ended when the others were granted, and end here.
   - Held claims are in order of their tokens, and in front of all that wait. */
create procedure {order_holders}(in p_key varbinary(512), in p_bucket smallint, in p_now bigint)
sql security invoker modifies sql data comment '{revision}'
begin
  declare v_id, v_first varbinary(64);
  declare v_permits, v_limit bigint;
  declare v_used, v_token, v_ttl, v_first_ttl, v_arrival, v_lowest, v_next bigint;
  conflicts: loop
    set v_used = 0, v_token = 0, v_first = null;
    holders: loop
      set v_id = null;
      select id, permits, permit_limit, token, ttl * 1000 into v_id, v_permits, v_limit, v_token, v_ttl from {claims} force index (by_key)
        where `key` = p_key and token > v_token and expires > p_now order by token limit 1;
      if v_id is null then leave conflicts; end if;
      if v_first is null then set v_first = v_id, v_first_ttl = v_ttl; end if;
      set v_used = v_used + v_permits;
      if v_used > v_limit then leave holders; end if;
    end loop;
    delete from {claims} where id = v_first;
    call {add_tombstone}(v_first, p_bucket, 'expired', p_now, v_first_ttl);
  end loop;
  select min(arrival), min(if(token = 0, arrival, null)) into v_lowest, v_next from {claims} force index (by_key) where `key` = p_key;
  set v_token = 9223372036854775807;
  moves: loop
    set v_id = null;
    select id, arrival, token into v_id, v_arrival, v_token from {claims} force index (by_key)
      where `key` = p_key and token > 0 and token < v_token order by token desc limit 1;
    if v_id is null then leave moves; end if;
    if v_arrival >= v_next then
      set v_lowest = v_lowest - 1, v_next = v_lowest;
      update {claims} set arrival = v_lowest where id = v_id;
    else
      set v_next = v_arrival;
    end if;
  end loop;
end
