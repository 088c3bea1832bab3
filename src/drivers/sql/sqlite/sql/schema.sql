/* schema.sql — the tables. docs/design/sql.md describes them. Times are microseconds since 1970, of the clock of this
   machine in milliseconds (clock.ts). Text is compared byte by byte.
   A semicolon at the end of a line separates statements.
   Parameters of the statement for the bucket rows: their number.
   Returns nothing. Cost: once for each database. */
create table if not exists {layout} (
  only_row integer primary key check (only_row = 1),
  version integer not null
) strict;

create table if not exists {buckets} (
  bucket integer primary key,
  last_token integer not null
) strict;

-- token 0: it waits. state: 'o' owned, 'd' detached, 'r' revoked
create table if not exists {claims} (
  id text primary key,
  key text not null,
  arrival integer not null,
  bucket integer not null,
  permits integer not null,
  permit_limit integer not null,
  state text not null,
  ttl integer not null,
  expires integer not null,
  token integer not null,
  token_count integer not null,
  floor integer not null,
  inbox text not null,
  wait integer not null,
  label text not null,
  created integer not null,
  granted integer
) strict, without rowid;

create unique index if not exists {claims_by_key} on {claims} (key, arrival);

create index if not exists {claims_waiting} on {claims} (key, arrival) where token = 0;

-- What is in use by claims that share their key, so that no call reads them all. A key without a row is counted when it
-- is needed. used: their permits; first_expires: no lease of them ends before; written: when one of their leases was
-- written last
create table if not exists {totals} (
  key text primary key,
  used integer not null,
  first_expires integer not null,
  written integer not null
) strict, without rowid;

create table if not exists {identity} (
  only_row integer primary key check (only_row = 1),
  file text not null,
  sequence integer not null,
  grace_begins integer not null,
  grace_ends integer not null
) strict;

create table if not exists {tombstones} (
  id text primary key,
  reason text not null,
  expires integer not null
) strict, without rowid;

create index if not exists {tombstones_by_expiry} on {tombstones} (expires)
