/* read_owned.sql — the claims of a process that are neither detached nor revoked, waiting and held.
   Parameters  the inbox of the process
   Returns     a JSON list with an object for each claim
   Cost        O(all claims): it runs once after a break */
create or replace function {read_owned}(p_inbox text) returns text language plpgsql {settings} as $body$
begin
  return (
    select coalesce(pg_catalog.json_agg(owned), '[]')
      from (select id, key, bucket, ttl from {claims} where inbox = p_inbox and state = 'o') as owned
  );
end $body$;
