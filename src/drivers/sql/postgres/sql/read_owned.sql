/* read_owned.sql — the claims of a process that are neither detached nor revoked, waiting and held.
   Parameters  the inbox of the process
   Cost        O(all claims): it runs once after a break */
select id, key, bucket::text, ttl::text from {claims} where inbox = $1::text and state = 'o'
