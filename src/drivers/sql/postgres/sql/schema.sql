/* schema.sql — the tables. docs/design/sql.md describes them. All times are microseconds since 1970 by the database's clock.
   Text is compared byte by byte (collation "C"). A key's bucket is computed by the client (schema.ts). */
create table if not exists {layout} (
  only_row boolean primary key default true check (only_row),
  version int not null,
  -- raised with every change of a function: an older version of the library does not replace newer functions
  revision int not null
);
-- A bucket's row serializes all changes to the queues of its keys. It is updated by every grant, so its page has room for
-- further versions.
create table if not exists {buckets} (
  bucket int primary key,
  last_token bigint not null
) with (fillfactor = 20);
-- token 0: it waits. state: 'o' owned, 'd' detached, 'r' revoked. The columns that a renewal changes are in no index.
create table if not exists {claims} (
  id text collate "C" primary key,
  key text collate "C" not null,
  arrival bigint not null,
  bucket int not null,
  permits int not null,
  permit_limit int not null,
  state "char" not null,
  ttl bigint not null,
  expires bigint not null,
  token bigint not null,
  token_count int not null,
  floor bigint not null,
  inbox text collate "C" not null,
  wait boolean not null,
  label text not null,
  created bigint not null,
  granted bigint,
  unique (key, arrival)
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
create table if not exists {tombstones} (
  id text collate "C" primary key,
  reason text not null,
  expires bigint not null
);
create index if not exists {tombstones_expires} on {tombstones} (expires);
insert into {buckets} select bucket, 0 from pg_catalog.generate_series(0, {bucket_count} - 1) bucket on conflict do nothing;
