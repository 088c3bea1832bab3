/* list.sql — lists live claims in order of key and arrival. Takes no lock.
   in       p_from, p_to: keys from p_from on, and below p_to; p_key and p_arrival: only rows after this one, p_arrival
            NULL: all; p_max: the most rows; p_first_bucket, p_last_bucket: the keys have buckets from this one to that
            one
   returns  a row for each claim: keys and labels in hexadecimal, numbers as text, since clients round large ones
   cost     O(rows of the page, expired rows between them, and buckets) */
create procedure {list}(
  in p_from varbinary(512), in p_to varbinary(513), in p_key varbinary(512), in p_arrival bigint, in p_max int,
  in p_first_bucket smallint, in p_last_bucket smallint
)
sql security invoker reads sql data comment '{revision}'
begin
  declare v_now bigint;
  set transaction isolation level read committed;
  start transaction read only;
  begin
    declare exit handler for sqlexception begin
      rollback and no chain no release;
      resignal;
    end;
    set v_now = {now};
    -- one statement: between two a claim could move from its bucket's row into the table of claims
    select convert(id using ascii) as id, hex(`key`) as key_hex, cast(arrival as char) as arrival, cast(permits as char) as permits,
        cast(permit_limit as char) as permit_limit, cast(ttl as char) as ttl, cast(token_count as char) as token_count,
        cast(floor as char) as floor, cast(wait as char) as wait, hex(label) as label_hex, cast(token as char) as token,
        cast((least(expires, v_now + ttl * 1000) - v_now) div 1000 as char) as remaining,
        cast(greatest(v_now - created, 0) div 1000 as char) as age,
        if(granted is null, '', cast(greatest(v_now - granted, 0) div 1000 as char)) as held, state
      from (
        (select id, `key`, arrival, permits, permit_limit, state, ttl, expires, token, token_count, floor, wait, label, created, granted
          from {claims} force index (by_key)
          where `key` >= p_from and `key` < p_to and expires > v_now
            and (p_arrival is null or `key` > p_key or (`key` = p_key and arrival > p_arrival))
          order by `key`, arrival limit p_max)
        union all
        (select id, `key`, 1, permits, permit_limit, 'o', ttl, expires, last_token - token_count + 1, token_count, floor, wait, label,
            created, created
          from {buckets}
          where bucket between p_first_bucket and p_last_bucket and form = 'lone' and `key` >= p_from and `key` < p_to and expires > v_now
            and (p_arrival is null or `key` > p_key or (`key` = p_key and 1 > p_arrival))
          order by `key` limit p_max)
      ) as c
      -- without the table's name these would be the columns of the result, which are text
      order by c.`key`, c.arrival limit p_max;
    commit and no chain no release;
  end;
end
