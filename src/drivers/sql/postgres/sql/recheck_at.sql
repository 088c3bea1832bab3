/* recheck_at.sql — when the claim that waits in front of all others is to be rechecked at the latest, if it waits for a
   claim that is recalled by a push, which may be lost: soon, and then at intervals of its age. A lost push so costs a
   fraction of the wait, and a long wait few calls.
   Parameters  when it began to wait, now */
create or replace function {recheck_at}(p_created bigint, p_now bigint) returns bigint language sql as $body$
  select p_now + greatest(200000, p_now - p_created)
$body$;
