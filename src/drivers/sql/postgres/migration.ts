/** The statements of a location, and the text that creates its schema, tables and functions. */

import { BUCKET_COUNT, expandNames, LAYOUT_VERSION, quoteIdentifier, toName } from "../schema.ts";
import type { PostgresLocation } from "./options.ts";
import { resolveLocation, validateLocation } from "./options.ts";
import ADD_TOMBSTONE from "./sql/add_tombstone.sql";
import CHECK_DATA_LOSS from "./sql/check_data_loss.sql";
import CLAIM from "./sql/claim.sql";
import CLAIM_QUEUED from "./sql/claim_queued.sql";
import DETACH from "./sql/detach.sql";
import ENCODE_ANSWER from "./sql/encode_answer.sql";
import LIST from "./sql/list.sql";
import LOCK_BUCKETS from "./sql/lock_buckets.sql";
import MARK_RECALLED from "./sql/mark_recalled.sql";
import ORDER_HOLDERS from "./sql/order_holders.sql";
import PURGE_TOMBSTONES from "./sql/purge_tombstones.sql";
import READ_CLOCK from "./sql/read_clock.sql";
import READ_FRONT from "./sql/read_front.sql";
import READ_GRACE from "./sql/read_grace.sql";
import READ_OWNED from "./sql/read_owned.sql";
import RECALL_HOLDERS from "./sql/recall_holders.sql";
import RECHECK_AT from "./sql/recheck_at.sql";
import RELEASE from "./sql/release.sql";
import RENEW from "./sql/renew.sql";
import RESTART_LEASE from "./sql/restart_lease.sql";
import RESTORE from "./sql/restore.sql";
import REVOKE from "./sql/revoke.sql";
import SCHEMA from "./sql/schema.sql";
import START_GRACE from "./sql/start_grace.sql";
import SWEEP from "./sql/sweep.sql";
import WALK from "./sql/walk.sql";

/**
 * Raise it with every change of a function. A database keeps the functions of the highest revision, so an older version
 * of the library does not replace those of a newer one.
 */
export const REVISION = 12;

/**
 * The oldest revision of a library that can call the functions: raise it to REVISION when parameters change, or when a
 * reply changes that older versions must understand. Older versions refuse such a database, and work with any other of
 * their layout.
 */
const OLDEST_CALLER = 2;

/**
 * Settings of the functions that clients call. Every look-up is by an index, and a plan is made once in a session: one
 * that was made while the tables were small would later read all rows. A session that turns index scans off would make
 * plans that seem so costly that the server compiles them, at each call. And operators are those of pg_catalog: another
 * role that may create operators in a schema of the session's search_path, as in "public" before PostgreSQL 15, could
 * otherwise put its own functions in their place, which would run with the rights of the caller. No call waits for a
 * lock for longer than 4 s, whatever the session allows: then it ends in an error (55P03) before its client gives it
 * up.
 */
const FUNCTION_SETTINGS =
  "set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_indexscan = on set enable_sort = off set jit = off set lock_timeout = 4000";

/** How a claim that is held learns that another one waits: the column recall (schema.sql). */
export const RECALL = { none: 0, byReply: 1, byPush: 2 } as const;

/** In the order of creation. */
const FUNCTIONS: readonly string[] = [
  READ_CLOCK,
  LOCK_BUCKETS,
  ADD_TOMBSTONE,
  PURGE_TOMBSTONES,
  READ_GRACE,
  START_GRACE,
  CHECK_DATA_LOSS,
  WALK,
  READ_FRONT,
  ENCODE_ANSWER,
  MARK_RECALLED,
  RECALL_HOLDERS,
  RECHECK_AT,
  RESTART_LEASE,
  SWEEP,
  CLAIM_QUEUED,
  CLAIM,
  RENEW,
  RELEASE,
  DETACH,
  REVOKE,
  ORDER_HOLDERS,
  RESTORE,
  LIST,
  READ_OWNED,
];

/** The names of all functions, without their schema. */
export function listFunctionNames(prefix: string): string[] {
  return FUNCTIONS.map((text) => toName(/\{(\w+)\}/.exec(text)?.[1] ?? "", prefix));
}

/** Puts names and constants into a statement. */
export function expandStatement(text: string, { schema, prefix }: PostgresLocation): string {
  return expandNames(text, prefix, (name, word) => {
    switch (word) {
      case "bucket_count":
        return String(BUCKET_COUNT);
      case "version":
        return String(LAYOUT_VERSION);
      case "revision":
        return String(REVISION);
      case "oldest_caller":
        return String(OLDEST_CALLER);
      case "recall_by_push":
        return String(RECALL.byPush);
      case "settings":
        return FUNCTION_SETTINGS;
      case "schema":
        return quoteIdentifier(schema);
      case "schema_literal":
        return quoteLiteral(schema);
      case "buckets_literal":
      case "claims_literal":
        return quoteLiteral(expandStatement(`{${word.replace("_literal", "")}}`, { schema, prefix }));
      case "tombstones_expires_literal":
        return quoteLiteral(`${quoteIdentifier(schema)}.${quoteIdentifier(toName("tombstones_expires", prefix))}`);
      case "tombstones_expires": // an index is in the schema of its table
        return quoteIdentifier(name);
      default:
        return `${quoteIdentifier(schema)}.${quoteIdentifier(name)}`;
    }
  });
}

/**
 * Creates what is missing, and replaces functions of a lower revision. In one transaction: sent as one text, it is one
 * without `begin`.
 */
export function renderMigration(location: PostgresLocation): string {
  const parts = [SCHEMA, ...FUNCTIONS].map((text) => expandStatement(text, location).replace(/;?$/, ";"));
  return `${parts.join("\n")}\n`;
}

/**
 * The SQL that creates the schema, tables and functions of the PostgreSQL driver, for those who do not let `open()`
 * create them (option `createTables`). It can run again, and while locks are in use. Its comments name the rights that
 * the driver's role needs.
 * @throws TypeError naming the invalid option
 */
export function postgresMigration(options: { readonly schema?: string; readonly prefix?: string } = {}): string {
  validateLocation(options);
  const location = resolveLocation(options);
  const grants = expandStatement(GRANTS, location)
    .split("\n")
    .map((line) => `-- ${line}`);
  return `begin;\n${renderMigration(location)}commit;\n${grants.join("\n")}\n`;
}

const GRANTS = `Rights of a role that only locks (option createTables: false, or after the first open):
grant usage on schema {schema} to ROLE;
grant select on {layout} to ROLE;
grant select, update on {buckets} to ROLE;
grant select, insert, update on {identity} to ROLE;
grant select, insert, update, delete on {claims}, {tombstones} to ROLE;`;

/** Means the same whatever standard_conforming_strings is. */
function quoteLiteral(text: string): string {
  return `E'${text.replaceAll("\\", "\\\\").replaceAll("'", "''")}'`;
}
