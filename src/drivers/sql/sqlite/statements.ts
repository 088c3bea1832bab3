// Made of sql/*.sql by `npm run statements`: change those, not this.

export const COUNT_ROWS: string =
  "select\n  (select count(*) from {claims}) as claims,\n  (select count(*) from {claims} where expires <= ?) as expired_claims,\n  (select count(*) from {tombstones}) as tombstones,\n  (select count(*) from {tombstones} where expires <= ?) as expired_tombstones";

export const DELETE_CLAIM: string = "delete from {claims} where id = ? returning key, state, expires, token, permits";

export const EXTEND_LEASE: string = "update {claims} set expires = ?, inbox = ? where id = ?";

export const FILL_BUCKETS: string =
  "insert into {buckets} (bucket, last_token)\nwith recursive numbers (bucket) as (\n  select 0 union all select bucket + 1 from numbers where bucket + 1 < ?\n)\nselect bucket, 0 from numbers\nwhere true\non conflict (bucket) do nothing";

export const FIND_CLAIM: string = "select 1 from {claims} where key = ? limit 1";

export const FORGET_TOTALS: string = "delete from {totals} where key = ?";

export const GRANT_CLAIM: string = "update {claims} set token = ?, granted = ? where id = ?";

export const INSERT_CLAIM: string =
  "insert into {claims} (\n  id, key, arrival, bucket, permits, permit_limit, state, ttl, expires, token, token_count, floor, inbox, wait, label,\n  created, granted\n)\nvalues (\n  ?, ?, 1 + coalesce((select max(arrival) from {claims} where key = ?), 0), ?, ?, ?, 'o', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?\n)";

export const LIST_KEY: string =
  "select id, key, arrival, permits, permit_limit, ttl, expires, token, token_count, floor, wait, label, created, granted\nfrom {claims} where expires > ? and key = ? and arrival > ?\norder by arrival limit ?";

export const LIST_PREFIX: string =
  "select id, key, arrival, permits, permit_limit, ttl, expires, token, token_count, floor, wait, label, created, granted\nfrom {claims} where expires > ? and key >= ? and key < ? and (key, arrival) > (?, ?)\norder by key, arrival limit ?";

export const MOVE_CLAIM: string = "update {claims} set arrival = ? where id = ?";

export const PURGE_ALL: readonly string[] = [
  "delete from {claims}\nwhere expires <= ? and not exists (\n  select 1 from {claims} others\n  where others.key = {claims}.key and others.arrival > {claims}.arrival and others.expires > ?\n)",
  "delete from {totals}",
  "delete from {tombstones} where expires <= ?",
];

export const PURGE_TOMBSTONES: string =
  "delete from {tombstones} where id in (select id from {tombstones} where expires <= ? order by expires limit ?)";

export const READ_BUCKET: string = "select last_token from {buckets} where bucket = ?";

export const READ_CLAIM: string =
  "select id, key, arrival, bucket, permits, permit_limit, state, ttl, expires, token, token_count, floor, inbox\nfrom {claims} where id = ?";

export const READ_CLOCK: string =
  "select cast(round(unixepoch('subsec') * 1000) as integer) * 1000 as now, total_changes() as changes";

export const READ_ENTRY: string =
  "select\n  cast(round(unixepoch('subsec') * 1000) as integer) * 1000 as now, last_token,\n  (\n    select reason from {tombstones}\n    where id = ? and expires > cast(round(unixepoch('subsec') * 1000) as integer) * 1000\n  ) as reason,\n  exists (select 1 from {claims} where id = ?) as is_known,\n  exists (select 1 from {claims} where key = ?) as is_queued\nfrom {buckets} where bucket = ?";

export const READ_FRONT: string =
  "select min(arrival) as lowest, min(case when token = 0 then arrival end) as lowest_waiting from {claims} where key = ?";

export const READ_HOLDERS: string =
  "select id, key, arrival, bucket, permits, permit_limit, state, ttl, expires, token, token_count, floor, inbox\nfrom {claims} where key = ? and token > 0\norder by token";

export const READ_IDENTITY: string = "select file, sequence, grace_begins, grace_ends from {identity}";

export const READ_LAST: string = "select token from {claims} where key = ? order by arrival desc limit 1";

export const READ_LAYOUT: string = "select version from {layout}";

export const READ_OWNED: string =
  "select id, key, arrival, bucket, permits, permit_limit, state, ttl, expires, token, token_count, floor, inbox\nfrom {claims} where inbox = ? and state = 'o'";

export const READ_QUEUE: string =
  "select id, key, arrival, bucket, permits, permit_limit, state, ttl, expires, token, token_count, floor, inbox\nfrom {claims} where key = ? and arrival > ?\norder by arrival limit ?";

export const READ_TOMBSTONE: string = "select reason from {tombstones} where id = ? and expires > ?";

export const READ_TOTALS: string = "select used, first_expires, written from {totals} where key = ?";

export const READ_WAITING: string =
  "select id, key, arrival, bucket, permits, permit_limit, state, ttl, expires, token, token_count, floor, inbox\nfrom {claims} where key = ? and token = 0 and arrival > ?\norder by arrival limit ?";

export const REDUCE_TOTALS: string = "update {totals} set used = used - ? where key = ? returning used";

export const SCHEMA: readonly string[] = [
  "create table if not exists {layout} (\n  only_row integer primary key check (only_row = 1),\n  version integer not null\n) strict",
  "create table if not exists {buckets} (\n  bucket integer primary key,\n  last_token integer not null\n) strict",
  "create table if not exists {claims} (\n  id text primary key,\n  key text not null,\n  arrival integer not null,\n  bucket integer not null,\n  permits integer not null,\n  permit_limit integer not null,\n  state text not null,\n  ttl integer not null,\n  expires integer not null,\n  token integer not null,\n  token_count integer not null,\n  floor integer not null,\n  inbox text not null,\n  wait integer not null,\n  label text not null,\n  created integer not null,\n  granted integer\n) strict, without rowid",
  "create unique index if not exists {claims_by_key} on {claims} (key, arrival)",
  "create index if not exists {claims_waiting} on {claims} (key, arrival) where token = 0",
  "create table if not exists {totals} (\n  key text primary key,\n  used integer not null,\n  first_expires integer not null,\n  written integer not null\n) strict, without rowid",
  "create table if not exists {identity} (\n  only_row integer primary key check (only_row = 1),\n  file text not null,\n  sequence integer not null,\n  grace_begins integer not null,\n  grace_ends integer not null\n) strict",
  "create table if not exists {tombstones} (\n  id text primary key,\n  reason text not null,\n  expires integer not null\n) strict, without rowid",
  "create index if not exists {tombstones_by_expiry} on {tombstones} (expires)",
];

export const SET_STATE: string = "update {claims} set state = ?, expires = ? where id = ?";

export const WRITE_BUCKET: string = "update {buckets} set last_token = ? where bucket = ?";

export const WRITE_IDENTITY: string =
  "insert into {identity} (only_row, file, sequence, grace_begins, grace_ends) values (1, ?, ?, ?, ?)\non conflict (only_row) do update set file = excluded.file, sequence = excluded.sequence,\n  grace_begins = excluded.grace_begins, grace_ends = excluded.grace_ends";

export const WRITE_LAYOUT: string =
  "insert into {layout} (only_row, version) values (1, ?) on conflict (only_row) do nothing";

export const WRITE_TOMBSTONE: string =
  "insert into {tombstones} (id, reason, expires) values (?, ?, ?)\non conflict (id) do update set reason = excluded.reason, expires = max(expires, excluded.expires)";

export const WRITE_TOTALS: string =
  "insert into {totals} (key, used, first_expires, written) values (?, ?, ?, ?)\non conflict (key) do update set used = excluded.used, first_expires = excluded.first_expires, written = excluded.written";
