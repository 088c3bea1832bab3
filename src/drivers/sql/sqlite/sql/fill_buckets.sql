/* fill_buckets.sql — creates the bucket rows.
   Parameters: their number
   Cost: once for each database. */
insert into {buckets} (bucket, last_token)
with recursive numbers (bucket) as (
  select 0 union all select bucket + 1 from numbers where bucket + 1 < ?
)
select bucket, 0 from numbers
where true
on conflict (bucket) do nothing
