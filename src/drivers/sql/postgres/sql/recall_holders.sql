/* recall_holders.sql — recalls the held claims of a key that are to learn by a push that another one waits.
   Parameters  key, the caller's inbox, and pushes that the caller has collected
   Returns     pushes: those, and "<id> recalled" for each claim of the caller's inbox
   Cost        O(held claims), and one NOTIFY for each claim of another inbox

   Invariant: called only for the claim that waits in front of all others, when it begins to wait and when it is
   rechecked, and only if there is a claim to recall: a queue without such a claim causes no NOTIFY, and neither do the
   claims further behind. */
create or replace function {recall_holders}(p_key text, p_inbox text, inout pushes text[]) language plpgsql as $body$
declare
  c record;
begin
  for c in select id, state, token, inbox, recall from {claims} where key = p_key order by arrival loop
    exit when c.token = 0;
    continue when c.recall <> {recall_by_push} or c.state <> 'o';
    if c.inbox = p_inbox then
      pushes := pushes || (c.id || ' recalled');
    elsif pg_catalog.starts_with(c.inbox, 'hf_') then
      perform pg_catalog.pg_notify(c.inbox, c.id || ' recalled');
    end if;
  end loop;
end $body$;
