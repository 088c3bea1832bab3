/* order_holders.sql — after a claim was restored: ends held claims of the key that conflict, and puts the others in
   front, in order of their tokens. Needs the lock of the key's bucket.
   Parameters  key, now
   Cost        O(held claims), and as much again for each that ends

   Invariants
   - In order of tokens each held claim fits beside those before it, as when it was granted. Claims that do not were not
     held at the same time: those with the lowest tokens had ended when the others were granted, and end here.
   - Held claims are in order of their tokens, and in front of all that wait. */
create or replace function {order_holders}(p_key text, p_now bigint) returns void language plpgsql as $body$
declare
  v_used bigint;
  v_lowest bigint;
  v_next bigint;
  c record;
begin
  <<conflicts>> loop
    v_used := 0;
    for c in select permits, permit_limit from {claims} where key = p_key and token > 0 and expires > p_now order by token loop
      v_used := v_used + c.permits;
      if v_used > c.permit_limit then
        delete from {claims} where id = (
          select id from {claims} where key = p_key and token > 0 and expires > p_now order by token limit 1
        ) returning id, ttl into strict c;
        perform {add_tombstone}(c.id, 'expired', c.ttl, p_now);
        continue conflicts;
      end if;
    end loop;
    exit;
  end loop;
  select min(arrival), min(arrival) filter (where token = 0) into v_lowest, v_next from {claims} where key = p_key;
  for c in select id, arrival from {claims} where key = p_key and token > 0 order by token desc loop
    if c.arrival >= v_next then
      v_lowest := v_lowest - 1;
      update {claims} set arrival = v_lowest where id = c.id;
      v_next := v_lowest;
    else
      v_next := c.arrival;
    end if;
  end loop;
end $body$;
