/**
 * The statements on the tables of SQLite (sql/schema.sql), which rows.ts runs. A name in braces is that of a table,
 * `{now}` the clock. Each says what it does, the parameters in their order, and its cost.
 */

/** The columns of a StoredClaim. */
const CLAIM = "id, key, arrival, bucket, permits, permit_limit, state, ttl, expires, token, token_count, floor, inbox";
/** The columns of a ListedRow. */
const LISTED =
  "id, key, arrival, permits, permit_limit, ttl, expires, token, token_count, floor, wait, label, created, granted";

// the layout and the buckets
/** The layout of the tables: at most one row. Fails if there are no tables. Cost: one row. */
export const READ_LAYOUT = "select version from {layout}";
/** Notes the layout of new tables. Parameters: the version. Cost: one row. */
export const WRITE_LAYOUT = "insert into {layout} (only_row, version) values (1, ?) on conflict (only_row) do nothing";
/** Creates the bucket rows. Parameters: their number. Cost: once for each database. */
export const FILL_BUCKETS = `insert into {buckets} (bucket, last_token)
with recursive numbers (bucket) as (
  select 0 union all select bucket + 1 from numbers where bucket + 1 < ?
)
select bucket, 0 from numbers
where true
on conflict (bucket) do nothing`;
/** The highest token of a bucket, read under the lock. Parameters: bucket. Cost: one row. */
export const READ_BUCKET = "select last_token from {buckets} where bucket = ?";
/** Notes the highest token granted in a bucket (I2). Parameters: token, bucket. Cost: one row. */
export const WRITE_BUCKET = "update {buckets} set last_token = ? where bucket = ?";

// the clock
/** The time, and a number that every change by this connection raises. Cost: no table is read. */
export const READ_CLOCK = "select {now} as now, total_changes() as changes";

// one claim
/**
 * What a claim has to know first: the time, the highest token of its bucket, how it ended if it did, whether it has a
 * row, and whether its key has claims. Parameters: id, id, key, bucket. Cost: four index probes.
 */
export const READ_ENTRY = `select
    {now} as now, last_token,
    (
      select reason from {tombstones}
      where id = ? and expires > {now}
    ) as reason,
    exists (select 1 from {claims} where id = ?) as is_known,
    exists (select 1 from {claims} where key = ?) as is_queued
  from {buckets} where bucket = ?`;
/** One claim by its id. Parameters: id. Cost: one row. */
export const READ_CLAIM: string = `select ${CLAIM} from {claims} where id = ?`;
/** Whether a key has claims. Parameters: key. Cost: one index probe. */
export const FIND_CLAIM = "select 1 from {claims} where key = ? limit 1";
/**
 * Puts a claim at the end of the queue of its key. Parameters: id, key, key, bucket, permits, limit, ttl, expires,
 * token (0: it waits), number of tokens, floor, inbox, whether it waits, label, now, now if it is granted. Cost: one
 * row; the last arrival is the end of the index.
 */
export const INSERT_CLAIM: string = `insert into {claims} (${CLAIM}, wait, label, created, granted)
  values (
    ?, ?, 1 + coalesce((select max(arrival) from {claims} where key = ?), 0), ?, ?, ?, 'o', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
  )`;
/**
 * Grants a waiting claim. Its lease stays as it is: its client counts it from a call that it sent. Parameters: token,
 * now, id. Cost: one row.
 */
export const GRANT_CLAIM = "update {claims} set token = ?, granted = ? where id = ?";
/**
 * Moves the end of a lease, for the process with this inbox. Parameters: expires, inbox, id. Cost: one row, no index.
 */
export const EXTEND_LEASE = "update {claims} set expires = ?, inbox = ? where id = ?";
/**
 * Marks a claim as detached or revoked, and sets the end of its lease. Parameters: state, expires, id. Cost: one row.
 */
export const SET_STATE = "update {claims} set state = ?, expires = ? where id = ?";
/** Moves a claim within its queue. Parameters: arrival, id. Cost: one row. */
export const MOVE_CLAIM = "update {claims} set arrival = ? where id = ?";
/** Removes a claim from its queue. Returns what it was. Parameters: id. Cost: one row. */
export const DELETE_CLAIM = "delete from {claims} where id = ? returning key, state, expires, token, permits";

// the queue of a key
/**
 * The next claims of a queue in order of arrival. Parameters: key, the arrival after which to begin, the most rows.
 * Cost: O(rows).
 */
export const READ_QUEUE: string = `select ${CLAIM}
  from {claims} where key = ? and arrival > ?
  order by arrival limit ?`;
/**
 * The next waiting claims of a queue in order of arrival. Parameters: key, the arrival after which to begin, the most
 * rows. Cost: O(rows), however many hold the key.
 */
export const READ_WAITING: string = `select ${CLAIM}
  from {claims} where key = ? and token = 0 and arrival > ?
  order by arrival limit ?`;
/** The held claims of a key, in order of their tokens. Parameters: key. Cost: O(claims of the key). */
export const READ_HOLDERS: string = `select ${CLAIM}
  from {claims} where key = ? and token > 0
  order by token`;
/**
 * The lowest arrival of a key, and the lowest that waits; null: there is none. Parameters: key. Cost: O(claims of the
 * key).
 */
export const READ_FRONT =
  "select min(arrival) as lowest, min(case when token = 0 then arrival end) as lowest_waiting from {claims} where key = ?";
/** The token of the last claim of a queue: 0 if it waits. Parameters: key. Cost: the end of the index. */
export const READ_LAST = "select token from {claims} where key = ? order by arrival desc limit 1";

// what is in use of a key by claims that share it
/**
 * What is in use of a key by claims that share it: at most one row. None: it is to be counted. Parameters: key. Cost:
 * one row.
 */
export const READ_TOTALS = "select used, first_expires, written from {totals} where key = ?";
/** Notes what is in use of a key. Parameters: key, used, first end of a lease, now. Cost: one row. */
export const WRITE_TOTALS = `insert into {totals} (key, used, first_expires, written) values (?, ?, ?, ?)
  on conflict (key) do update set used = excluded.used, first_expires = excluded.first_expires, written = excluded.written`;
/**
 * Subtracts the permits of a claim that is not held any more. Returns the permits that are still in use. Parameters:
 * permits, key. Cost: one row.
 */
export const REDUCE_TOTALS = "update {totals} set used = used - ? where key = ? returning used";
/** What is in use of a key is to be counted again. Parameters: key. Cost: one row. */
export const FORGET_TOTALS = "delete from {totals} where key = ?";

// tombstones
/** How a claim ended. Parameters: id, now. Cost: one row. */
export const READ_TOMBSTONE = "select reason from {tombstones} where id = ? and expires > ?";
/**
 * Notes how a claim ended. A second note lasts at least as long as the first. Parameters: id, reason, expires. Cost:
 * one row.
 */
export const WRITE_TOMBSTONE = `insert into {tombstones} (id, reason, expires) values (?, ?, ?)
  on conflict (id) do update set reason = excluded.reason, expires = max(expires, excluded.expires)`;
/** Deletes expired tombstones, the oldest first. Parameters: now, the most rows. Cost: O(rows). */
export const PURGE_TOMBSTONES =
  "delete from {tombstones} where id in (select id from {tombstones} where expires <= ? order by expires limit ?)";

// the identity row (identity.ts)
/** What the database was when data was last known to be there (identity.ts): at most one row. Cost: one row. */
export const READ_IDENTITY = "select file, sequence, grace_begins, grace_ends from {identity}";
/**
 * Notes what the database is, and the grace period. Parameters: file, sequence, begin and end of the grace period.
 * Cost: one row.
 */
export const WRITE_IDENTITY = `insert into {identity} (only_row, file, sequence, grace_begins, grace_ends) values (1, ?, ?, ?, ?)
  on conflict (only_row) do update set file = excluded.file, sequence = excluded.sequence,
    grace_begins = excluded.grace_begins, grace_ends = excluded.grace_ends`;

// lists and diagnosis
/**
 * The claims of an inbox, waiting and held, that are neither detached nor revoked. Parameters: the inbox. Cost: O(all
 * claims).
 */
export const READ_OWNED: string = `select ${CLAIM} from {claims} where inbox = ? and state = 'o'`;
/**
 * Live claims of one queue, in order of arrival. Parameters: now, key, the arrival after which to begin, the most rows.
 * Cost: O(rows + expired rows).
 */
export const LIST_KEY: string = `select ${LISTED}
  from {claims} where expires > ? and key = ? and arrival > ?
  order by arrival limit ?`;
/**
 * Live claims with keys from a first one to below a bound, in order of key and arrival. Parameters: now, the first key,
 * the bound, the last key of the page before and its arrival, the most rows. Cost: O(rows + expired rows).
 */
export const LIST_PREFIX: string = `select ${LISTED}
  from {claims} where expires > ? and key >= ? and key < ? and (key, arrival) > (?, ?)
  order by key, arrival limit ?`;
/** How many rows there are, for diagnosis. Parameters: now, now. Cost: O(rows). */
export const COUNT_ROWS = `select
    (select count(*) from {claims}) as claims,
    (select count(*) from {claims} where expires <= ?) as expired_claims,
    (select count(*) from {tombstones}) as tombstones,
    (select count(*) from {tombstones} where expires <= ?) as expired_tombstones`;
