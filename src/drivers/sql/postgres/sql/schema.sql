/* schema.sql — the tables. docs/design/sql.md describes them. All times are microseconds since 1970 by the database's
   clock. Text is compared byte by byte (collation "C"). A key's bucket is computed by the client (schema.ts).
   Runs in one transaction with the functions, and alone: two clients that create them at once would fail. */
set transaction isolation level read committed;
-- the role that creates the tables may be an administrator: no operator or type of another role's schema is used
set local search_path = pg_catalog, pg_temp;
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended({schema_literal}, 20230801));
-- All calls of other processes wait behind a statement that waits for a table, such as one behind a dump: it soon gives
-- up, and open() tries again. For the same reason nothing locks a table that is as it should be
set local lock_timeout = 500;
-- without the right to create schemas even "create schema if not exists" fails
do $body$ begin
  if not exists (select from pg_catalog.pg_namespace where nspname = {schema_literal}) then
    create schema {schema};
  end if;
end $body$;
create table if not exists {layout} (
  only_row boolean primary key default true check (only_row),
  version int not null,
  revision int not null,
  oldest_caller int not null
);
-- Changed since revision 4 or 6: parameters, results and columns. A call that meets the change fails and is repeated.
-- So must one that is still in the older function, which would insert a claim in front of first_arrival: it does not
-- find highest_token by its older name
do $body$ begin
  if exists (select from {layout} where version = {version} and revision < 7) then
    drop function if exists {claim}(text, text, int, int, int, bigint, int, bigint, boolean, text, text, bigint);
    drop function if exists {walk}(text, int, bigint, bigint, text, text[]);
    drop function if exists {read_front}(text, bigint);
    drop function if exists {sweep}(text, bigint, text, text[]);
    if exists (select from pg_catalog.pg_attribute
      where attrelid = {buckets_literal}::pg_catalog.regclass and attname = 'last_token' and not attisdropped)
    then
      alter table {buckets} rename column last_token to highest_token;
      alter table {buckets} add column key text collate "C", add column first_arrival bigint, add column waits_from bigint,
        add column used bigint, add column next_expiry bigint, add column counted bigint, add column is_recallable boolean;
    end if;
    if not exists (select from pg_catalog.pg_attribute
      where attrelid = {claims_literal}::pg_catalog.regclass and attname = 'recall' and not attisdropped)
    then
      alter table {claims} add column recall smallint not null default 0;
    end if;
  end if;
end $body$;
insert into {layout} as layout values (true, {version}, {revision}, {oldest_caller}) on conflict (only_row)
  do update set revision = excluded.revision, oldest_caller = excluded.oldest_caller
  where layout.version = excluded.version and layout.revision < excluded.revision;
-- functions are never replaced by those of an older version of the library
do $body$ begin
  if not exists (select from {layout} where version = {version} and revision = {revision}) then
    raise exception 'the tables were made by a newer version of Holdfast' using errcode = 'HF003';
  end if;
end $body$;
-- A bucket's row serializes all changes to the queues of its keys. It is updated by every grant, so its page has room
-- for further versions. It also has what calls would otherwise read from all rows of a key, for one key of the bucket
-- (null: none): first_arrival: no row of {claims} arrived before. used (null: not known): the permits of its held
-- claims, which arrived before waits_from, where the others begin; no lease of theirs ends before next_expiry, so all
-- of them are read again then, or if the clock is behind counted, when they were read last; is_recallable: one of them
-- may have recall {recall_by_push}.
create table if not exists {buckets} (
  bucket int primary key,
  highest_token bigint not null,
  key text collate "C",
  first_arrival bigint,
  waits_from bigint,
  used bigint,
  next_expiry bigint,
  counted bigint,
  is_recallable boolean
) with (fillfactor = 20);
insert into {buckets} select bucket, 0 from pg_catalog.generate_series(0, {bucket_count} - 1) bucket on conflict do nothing;
-- token 0: it waits. state: 'o' owned, 'd' detached, 'r' revoked. recall: while it is held and another claim waits, 0:
-- nothing is said, 1: replies to its renewals say so, {recall_by_push}: they do, and its process gets a push. The
-- columns that a renewal changes are in no index. No fillfactor: a read frees the deleted rows of a page only once the
-- page is nearly full, which it would never be.
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
  recall smallint not null default 0,
  unique (key, arrival)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
-- One row, if a client has used guardDataLoss: what the database was when data was last known to be there
-- (read_grace.sql).
create table if not exists {identity} (
  only_row boolean primary key default true check (only_row),
  started timestamptz not null,
  file text not null,
  writer bigint not null,
  grace_begins bigint not null,
  grace_ends bigint not null
);
create table if not exists {tombstones} (
  id text collate "C" primary key,
  reason text not null,
  expires bigint not null
);
do $body$ begin
  if pg_catalog.to_regclass({tombstones_expires_literal}) is null then
    create index {tombstones_expires} on {tombstones} (expires);
  end if;
end $body$;
