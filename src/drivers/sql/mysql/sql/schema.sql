/* schema.sql — the tables (docs/design/sql.md). A semicolon at the end of a line separates statements.
   Keys and ids are bytes: collations ignore trailing spaces, and text of a connection is converted to its character
   set. Numbers of times are microseconds since 1970 of the database's clock.
   No secondary index is unique: the check of a unique one locks its neighbours, which are rows of other buckets.
   arrival is unique for each key because it is chosen under the lock of the bucket.
   The form of a bucket: 'free': no claim of its keys, and no tombstone; 'lone': one claim, held, whose fields are those
   of the row, whose first token is last_token - token_count + 1, and which arrived at `created`; 'queue': all claims
   are rows of {claims}, and their key is `key`, or there is no claim if `key` is empty; 'table': all claims are rows of
   {claims}. A new row has the form 'table': the procedures read the tables then, so it is correct even if these have
   claims already. In the last two forms the row may have the numbers of one key, `key`, which walk.sql would otherwise
   read from all its held claims: used: permits in use, NULL: there are no numbers; waits_from: held claims arrived
   before, and the others did not; next_expiry: no lease of a held claim ends before; counted: when that was read.
   Arrivals begin with the clock whenever a key has a claim again. While a transaction is open for long, deleted rows
   stay in `by_key`: they are in front of the live ones there, where no call looks.
   `by_bucket` finds rows of claims that ended without a release, tombstones of the bucket that have expired. */
create table if not exists {layout} (
  version int not null primary key
) engine = Innodb;

create table if not exists {buckets} (
  bucket smallint not null primary key,
  last_token bigint not null,
  form enum('free', 'lone', 'queue', 'table') character set ascii collate ascii_bin not null default 'table',
  id varbinary(64) not null default '',
  `key` varbinary(512) not null default '',
  permits int not null default 0,
  permit_limit int not null default 0,
  ttl bigint not null default 0,
  expires bigint not null default 0,
  token_count int not null default 0,
  floor bigint not null default 0,
  inbox varbinary(64) not null default '',
  wait boolean not null default false,
  label varbinary(1024) not null default '',
  created bigint not null default 0,
  used int null,
  waits_from bigint not null default 0,
  next_expiry bigint not null default 0,
  counted bigint not null default 0
) engine = Innodb row_format = dynamic;

create table if not exists {claims} (
  id varbinary(64) not null primary key,
  `key` varbinary(512) not null,
  arrival bigint not null,
  bucket smallint not null,
  permits int not null,
  permit_limit int not null,
  state char(1) character set ascii collate ascii_bin not null,
  ttl bigint not null,
  expires bigint not null,
  token bigint not null,
  token_count int not null,
  floor bigint not null,
  inbox varbinary(64) not null,
  wait boolean not null,
  label varbinary(1024) not null,
  created bigint not null,
  granted bigint null,
  index by_key (`key`, arrival),
  index by_bucket (bucket, id)
) engine = Innodb row_format = dynamic;

create table if not exists {identity} (
  only_row tinyint not null primary key,
  created varchar(32) character set ascii collate ascii_bin not null,
  sequence bigint unsigned not null,
  grace_begins bigint not null,
  grace_ends bigint not null
) engine = Innodb;

create table if not exists {tombstones} (
  id varbinary(64) not null primary key,
  bucket smallint not null,
  reason varchar(16) character set ascii collate ascii_bin not null,
  expires bigint not null,
  index by_bucket (bucket, expires)
) engine = Innodb
