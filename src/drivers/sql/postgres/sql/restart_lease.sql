/* restart_lease.sql — restarts the lease of a claim and, if it waits, walks its queue: it may be granted now. Needs the
   lock of its bucket.
   Parameters  id, now, when a grace period ends (0: none is running), the caller's inbox, and pushes that the caller
               has collected
   Returns     pushes: those, the grants of the walk, and recalls
               answer: as claim.sql; null if the claim is unknown. "r ..." instead of "h ...": held, and recalled */
create or replace function {restart_lease}(p_id text, p_now bigint, p_grace_ends bigint, p_inbox text, inout pushes text[], out answer text)
language plpgsql as $body$
declare
  c record;
  w record;
  v_expires bigint;
begin
  select key, arrival, bucket, permits, state, ttl, expires, token, token_count, created, recall into c from {claims} where id = p_id;
  if not found then
    return;
  end if;
  if c.expires <= p_now then
    delete from {claims} where id = p_id;
    answer := case c.state when 'r' then 'revoked' else 'expired' end;
    perform {add_tombstone}(p_id, answer, c.ttl, p_now);
    answer := 'n ' || answer;
    pushes := ({walk}(c.key, c.bucket, p_now, case when c.token > 0 then c.permits else 0 end, p_grace_ends, p_inbox, pushes)).pushes;
    return;
  end if;
  if c.state = 'r' then
    answer := 'n revoked';
    return;
  end if;
  v_expires := p_now + c.ttl * 1000;
  update {claims} set expires = v_expires, inbox = p_inbox where id = p_id;
  if c.token = 0 then
    w := {walk}(c.key, c.bucket, p_now, 0, p_grace_ends, p_inbox, pushes);
    pushes := w.pushes;
    select token into strict c.token from {claims} where id = p_id;
    if c.token = 0 and w.blocked_at = c.arrival and w.is_recallable then
      pushes := {recall_holders}(c.key, p_inbox, pushes);
      w.next_expiry := least(w.next_expiry, {recheck_at}(c.created, p_now));
    end if;
    answer := {encode_answer}(c.token, c.token_count, v_expires, w.next_expiry, p_grace_ends, p_now);
  else
    answer := {encode_answer}(c.token, c.token_count, v_expires, null, p_grace_ends, p_now);
  end if;
  if c.token > 0 and c.recall > 0 and c.state = 'o' then
    answer := {mark_recalled}(answer, c.key);
  end if;
end $body$;
