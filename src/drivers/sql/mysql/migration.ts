/** The statements of a location, and the text that creates its tables and procedures. */

import { BUCKET_COUNT, expandNames, MYSQL_LAYOUT_VERSION, splitStatements, toName } from "../schema.ts";
import { ROW_SETTINGS } from "./call-settings.ts";
import { LEASE_NOW, NOW } from "./clock.ts";
import type { MysqlLocation } from "./options.ts";
import { resolveLocation, validateLocation } from "./options.ts";
import { IS_READ_ONLY } from "./read-only.ts";
import { ROW_WORDS } from "./row-format.ts";
import ADD_TOMBSTONE from "./sql/add_tombstone.sql";
import BEGIN_TRANSACTION from "./sql/begin_transaction.sql";
import CHECK_DATA_LOSS from "./sql/check_data_loss.sql";
import CHECK_IDENTITY from "./sql/check_identity.sql";
import CLAIM from "./sql/claim.sql";
import CLAIM_QUEUED from "./sql/claim_queued.sql";
import DETACH from "./sql/detach.sql";
import END_TRANSACTION from "./sql/end_transaction.sql";
import LIST from "./sql/list.sql";
import LOCK_BUCKET from "./sql/lock_bucket.sql";
import ORDER_HOLDERS from "./sql/order_holders.sql";
import PURGE_TOMBSTONES from "./sql/purge_tombstones.sql";
import READ_OWNED from "./sql/read_owned.sql";
import REFUSE_SESSION from "./sql/refuse_session.sql";
import RELEASE from "./sql/release.sql";
import RELEASE_ROWS from "./sql/release_rows.sql";
import RENEW from "./sql/renew.sql";
import RESTORE from "./sql/restore.sql";
import REVOKE from "./sql/revoke.sql";
import SCHEMA from "./sql/schema.sql";
import WALK from "./sql/walk.sql";

/**
 * Raise it with every change of a procedure. A database keeps the procedures of the highest revision, so an older
 * version of the library does not replace those of a newer one.
 */
export const REVISION = 20;

/**
 * The oldest revision of a library that can call the procedures: raise it to REVISION when parameters change, or when a
 * reply changes that older versions must understand. Older versions refuse such a database, and work with any other of
 * their layout.
 */
const OLDEST_CALLER = 14;

/** The number of a bucket has two of these digits. */
const BUCKET_DIGITS = Math.sqrt(BUCKET_COUNT);

/** A procedure keeps the sql_mode of its creation, so no setting of a session changes what it does. */
export const PROCEDURE_SQL_MODE = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION";

/** The procedures by the words of their names, in the order of creation. */
const PROCEDURES: readonly (readonly [word: string, text: string])[] = [
  ["walk", WALK],
  ["check_identity", CHECK_IDENTITY],
  ["check_data_loss", CHECK_DATA_LOSS],
  ["order_holders", ORDER_HOLDERS],
  ["restore", RESTORE],
  ["refuse_session", REFUSE_SESSION],
  ["lock_bucket", LOCK_BUCKET],
  ["purge_tombstones", PURGE_TOMBSTONES],
  ["add_tombstone", ADD_TOMBSTONE],
  ["claim_queued", CLAIM_QUEUED],
  ["claim", CLAIM],
  ["renew", RENEW],
  ["release_rows", RELEASE_ROWS],
  ["release", RELEASE],
  ["detach", DETACH],
  ["revoke", REVOKE],
  ["list", LIST],
  ["read_owned", READ_OWNED],
];

/** A name in backticks, which mean the same whatever sql_mode is. */
function quoteName(name: string): string {
  return `\`${name.replaceAll("`", "``")}\``;
}

/** The words of statements that are no names: values, and what several procedures have in common. */
const CONSTANTS: Readonly<Record<string, string>> = {
  revision: `Holdfast, revision ${REVISION}, for callers from revision ${OLDEST_CALLER}`,
  now: NOW,
  lease_now: LEASE_NOW,
  is_read_only: IS_READ_ONLY,
  row_settings: ROW_SETTINGS,
  begin_transaction: BEGIN_TRANSACTION,
  end_transaction: END_TRANSACTION,
  ...ROW_WORDS,
};

/** Puts names and constants into a statement. */
export function expandStatement(text: string, { database, prefix }: MysqlLocation): string {
  const qualifier = database === null ? "" : `${quoteName(database)}.`;
  return expandNames(
    text,
    prefix,
    (name, word) => {
      // inside a text; a prefix has no quotes
      if (word === "claims_name") return toName("claims", prefix, MYSQL_LAYOUT_VERSION);
      return CONSTANTS[word] ?? `${qualifier}${quoteName(name)}`;
    },
    MYSQL_LAYOUT_VERSION,
  );
}

/** The names of all procedures of a prefix. */
export function listProcedures(prefix: string): readonly string[] {
  return PROCEDURES.map(([word]) => toName(word, prefix, MYSQL_LAYOUT_VERSION));
}

/** The revision of a procedure by its comment, and the oldest that can call it; 0: it has none. */
export function parseRevision(comment: unknown): { readonly revision: number; readonly oldestCaller: number } {
  const [, revision = 0, oldestCaller = 0] =
    /^Holdfast, revision (\d+), for callers from revision (\d+)$/.exec(String(comment)) ?? [];
  return { revision: Number(revision), oldestCaller: Number(oldestCaller) };
}

/** The statements that create tables and rows that are missing. They can run again, and while locks are in use. */
export function renderTables(location: MysqlLocation): readonly string[] {
  const digits = Array.from({ length: BUCKET_DIGITS }, (_, digit) => `select ${digit} as digit`).join(" union all ");
  return [
    ...splitStatements(SCHEMA),
    `insert ignore into {layout} (version) select ${MYSQL_LAYOUT_VERSION} from dual where not exists (select 1 from {layout})`,
    "insert ignore into {identity} (only_row, created, sequence, grace_begins, grace_ends) values (1, '', 0, 0, 0)",
    // A row that is inserted again is locked first: beside a session that keeps one locked, all those before it would
    // be, too. What is read at this level is not locked. A migration may run without autocommit, and tables have ended
    // its transaction before
    "commit and no chain no release",
    "set transaction isolation level read committed",
    `insert ignore into {buckets} (bucket, last_token) select bucket, 0
      from (select high.digit * ${BUCKET_DIGITS} + low.digit as bucket from (${digits}) as high cross join (${digits}) as low) as numbers
      where bucket not in (select bucket from {buckets})`,
  ].map((text) => expandStatement(text, location));
}

/**
 * The statements that create or replace the procedures. A call that meets one while it is replaced fails and is
 * repeated.
 */
export function renderProcedures(location: MysqlLocation): readonly string[] {
  return PROCEDURES.flatMap(([word, text]) => [`drop procedure if exists {${word}}`, text]).map((text) =>
    expandStatement(text, location),
  );
}

/**
 * The SQL that creates the tables and procedures of the driver for MariaDB and MySQL, for those who do not let `open()`
 * create them (option `createTables`): input for the programs mariadb and mysql. It can run again, and while locks are
 * in use. Its comments name the rights that the driver's user needs.
 * `database`: default: the database that the program uses.
 * @throws TypeError naming the invalid option
 */
export function mysqlMigration(options: { readonly database?: string; readonly prefix?: string } = {}): string {
  validateLocation(options);
  const location = resolveLocation(options);
  const target = location.database === null ? "DATABASE" : quoteName(location.database);
  const grants = GRANTS.replaceAll("DATABASE", target).split("\n");
  return [
    `set session sql_mode = '${PROCEDURE_SQL_MODE}';`,
    ...renderTables(location).map((text) => `${text};`),
    "DELIMITER //",
    ...renderProcedures(location).map((text) => `${text}//`),
    "DELIMITER ;",
    ...grants.map((line) => `-- ${line}`),
    "",
  ].join("\n");
}

const GRANTS = `Rights of a user that only locks (option createTables: false, or after the first open):
grant select, insert, update, delete, execute on DATABASE.* to USER;
To create tables and procedures it also needs CREATE, CREATE ROUTINE and ALTER ROUTINE.`;
