/* claim.sql — queues a claim, or finds it by its id and restarts its lease, and answers whether it is held.
   in       p_inbox: the caller's; p_lock_wait: the longest wait for a lock, in seconds; the fields of the claim;
            p_wait: it waits if it must; p_recall: it asks to be recalled; p_max_ttl: the longest ttl in ms, 0:
            guardDataLoss is off
   returns  reply: "h <token> <tokens> <remaining ms> <store ms>" | the same with "r": held, and recalled | "q
            <remaining ms> <recheck ms> <store ms> <waiters ahead>" | "n [reason]" |
            "f": the floor is more than a day ahead of the clock, and would exhaust the bucket's tokens |
            "p <end in ms> <store ms>": not granted because of a grace period, in which "h" and "r" have its end as
            another field | "w <remaining ms> <recheck ms> <store ms> <end in ms>": waiting in a grace period
   cost     a bucket without claims: 1 index probe, 1 row; else that of claim_queued.sql */
create procedure {claim}(
  in p_inbox varbinary(64), in p_lock_wait int, in p_id varbinary(64), in p_key varbinary(512), in p_bucket smallint,
  in p_permits int, in p_limit int, in p_ttl bigint, in p_count int, in p_floor bigint, in p_wait boolean,
  in p_recall boolean, in p_label varbinary(1024), in p_max_ttl bigint
)
sql security invoker modifies sql data comment '{revision}'
begin
  declare v_now bigint;
  {begin_transaction}
    -- before the lock: a lease that ends early by the time of a wait for it ends by the caller's clock, too, which
    -- began when it sent the call. NULL in a session that lock_bucket refuses, so no row is found
    set v_now = {lease_now};
    -- Most claims find no other claim in their bucket. One statement is enough: the update locks the row of the bucket,
    -- checks that the bucket has no claim, and writes this one. For a bucket without claims this
    -- restates the admission rule, and restates the token rule
    update {buckets} set last_token = last_insert_id(greatest(last_token + 1, v_now)) + p_count - 1, form = 'lone', id = p_id, `key` = p_key,
        permits = p_permits, permit_limit = p_limit, ttl = p_ttl, expires = v_now + p_ttl * 1000, token_count = p_count,
        floor = p_floor, inbox = p_inbox, wait = p_wait, label = p_label, created = v_now
      where bucket = p_bucket and form = 'free' and p_max_ttl = 0 and p_floor <= v_now and p_permits <= p_limit;
    if row_count() = 1 then
      -- the reply counts when the call has succeeded, so after the commit; the client decodes it while the log is
      -- flushed
      select concat('h ', last_insert_id(), ' ', p_count, ' ', p_ttl, ' ', v_now div 1000) as reply;
    else
      {row_settings}
      call {claim_queued}(p_inbox, p_lock_wait, p_id, p_key, p_bucket, p_permits, p_limit, p_ttl, p_count, p_floor,
        p_wait, p_recall, p_label, p_max_ttl);
    end if;
  {end_transaction}
end
