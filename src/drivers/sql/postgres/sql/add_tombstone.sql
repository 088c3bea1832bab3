/* add_tombstone.sql — keeps the reason of a claim's end: a `claim` call that arrives late must not queue it again, and
   a renewal learns the reason.
   Parameters  id, reason, ttl in ms, now
   Cost        one row. It lives for a ttl, at least 60 s: a statement may be stuck for longer than a short ttl */
create or replace function {add_tombstone}(p_id text, p_reason text, p_ttl bigint, p_now bigint) returns void language plpgsql as $body$
begin
  insert into {tombstones} as t values (p_id, p_reason, p_now + greatest(p_ttl, 60000) * 1000)
    on conflict (id) do update set reason = excluded.reason, expires = excluded.expires;
end $body$;
