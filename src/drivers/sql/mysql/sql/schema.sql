/* schema.sql — the tables (docs/design/sql.md). A semicolon at the end of a line separates statements.
   Keys and ids are bytes: collations ignore trailing spaces, and text of a connection is converted to its character set.
   Numbers of times are microseconds since 1970 of the database's clock.
   No secondary index is unique: the check of a unique one locks its neighbours, which are rows of other buckets. arrival is
   unique for each key because it is chosen under the lock of the bucket.
   The form of a bucket: 'free': no claim of its keys, and no tombstone; 'lone': one claim, held, whose fields are those of the row, and
   whose first token is last_token - token_count + 1; 'table': all claims are rows of {claims}. A new row has the form 'table': the
   procedures read the tables then, so it is correct even if these have claims already.
   In this form the row may have the numbers of one key, `key`, which walk.sql would otherwise read from all its held claims: used: permits
   in use, NULL: there are no numbers; waits_from: held claims arrived before, and the others did not; next_expiry: no lease of a held
   claim ends before; counted: when that was read.
   `by_bucket` finds rows of claims that ended without a release, tombstones of the bucket that have expired. */
CREATE TABLE IF NOT EXISTS {layout} (
  version INT NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS {buckets} (
  bucket SMALLINT NOT NULL PRIMARY KEY,
  last_token BIGINT NOT NULL,
  form ENUM('free', 'lone', 'table') CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'table',
  id VARBINARY(64) NOT NULL DEFAULT '',
  `key` VARBINARY(512) NOT NULL DEFAULT '',
  permits INT NOT NULL DEFAULT 0,
  permit_limit INT NOT NULL DEFAULT 0,
  ttl BIGINT NOT NULL DEFAULT 0,
  expires BIGINT NOT NULL DEFAULT 0,
  token_count INT NOT NULL DEFAULT 0,
  floor BIGINT NOT NULL DEFAULT 0,
  inbox VARBINARY(64) NOT NULL DEFAULT '',
  wait BOOLEAN NOT NULL DEFAULT FALSE,
  label VARBINARY(1024) NOT NULL DEFAULT '',
  created BIGINT NOT NULL DEFAULT 0,
  used INT NULL,
  waits_from BIGINT NOT NULL DEFAULT 0,
  next_expiry BIGINT NOT NULL DEFAULT 0,
  counted BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS {claims} (
  id VARBINARY(64) NOT NULL PRIMARY KEY,
  `key` VARBINARY(512) NOT NULL,
  arrival BIGINT NOT NULL,
  bucket SMALLINT NOT NULL,
  permits INT NOT NULL,
  permit_limit INT NOT NULL,
  state CHAR(1) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  ttl BIGINT NOT NULL,
  expires BIGINT NOT NULL,
  token BIGINT NOT NULL,
  token_count INT NOT NULL,
  floor BIGINT NOT NULL,
  inbox VARBINARY(64) NOT NULL,
  wait BOOLEAN NOT NULL,
  label VARBINARY(1024) NOT NULL,
  created BIGINT NOT NULL,
  granted BIGINT NULL,
  INDEX by_key (`key`, arrival),
  INDEX by_bucket (bucket, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS {identity} (
  only_row TINYINT NOT NULL PRIMARY KEY,
  created VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  sequence BIGINT UNSIGNED NOT NULL,
  grace_begins BIGINT NOT NULL,
  grace_ends BIGINT NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS {tombstones} (
  id VARBINARY(64) NOT NULL PRIMARY KEY,
  bucket SMALLINT NOT NULL,
  reason VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  expires BIGINT NOT NULL,
  INDEX by_bucket (bucket, expires)
) ENGINE = InnoDB
