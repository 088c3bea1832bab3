/** The options of the PostgreSQL driver. */

import { booleanRule, validateOptions } from "../../../util/validate.ts";
import { warningNamesRule } from "../../warnings.ts";
import type { SqlOptions } from "../options.ts";
import { SQL_OPTION_RULES } from "../options.ts";
import { prefixRule } from "../schema.ts";

/** A client for PostgreSQL: a Pool or a Client of pg, or the sql of postgres.js. */
export type PostgresClient = object;

/** Options of `postgres()`. */
export interface PostgresOptions extends SqlOptions {
  /**
   * The schema of the tables and functions. Clients with the same schema and prefix, in the same database, see each
   * other's locks. Default "holdfast".
   */
  readonly schema?: string;
  /**
   * Pushes to the holder of a lock when another claim waits for it, by NOTIFY, so that cached locks are released at
   * once and turns of local requests last as long as no other process waits. Without it holders learn of waiters when
   * they ask. Each claim that begins to wait behind such a lock then commits with a NOTIFY, and PostgreSQL serializes
   * those commits. Needs a Pool, and keeps one further connection open. Default false.
   */
  readonly recall?: boolean;
  /** Warnings that `open()` leaves out, by the names that `holdfast doctor` shows. Default: none. */
  readonly silenceWarnings?: readonly PostgresWarning[];
}

/** Where the tables and functions are. */
export interface PostgresLocation {
  readonly schema: string;
  readonly prefix: string;
}

const WARNING_NAMES = [
  "version",
  "role",
  "failover",
  "isolation",
  "durability",
  "connections",
  "vacuum",
  "push",
  "guardDataLoss",
] as const;

/** The name of a warning: what `silenceWarnings` takes and `holdfast doctor` shows. */
export type PostgresWarning = (typeof WARNING_NAMES)[number];

const DEFAULT_NAME = "holdfast";

/** PostgreSQL cuts longer names without an error. */
const MAX_NAME_BYTES = 63;

/**
 * A dollar could end the body of a function, in which the name is. PostgreSQL keeps names that begin with "pg_" for
 * itself.
 */
const schemaRule = (value: unknown): string | null =>
  typeof value === "string" && /^(?!pg_)[^$\p{Cc}]+$/u.test(value) && Buffer.byteLength(value) <= MAX_NAME_BYTES
    ? null
    : `1 to ${MAX_NAME_BYTES} bytes without control characters and "$", and not begin with "pg_"`;

/** @throws TypeError naming the invalid option */
export function validatePostgresOptions(options: PostgresOptions): void {
  validateOptions("postgres", options, {
    ...SQL_OPTION_RULES,
    schema: schemaRule,
    recall: booleanRule,
    silenceWarnings: warningNamesRule(WARNING_NAMES),
  });
}

/** @throws TypeError naming the invalid option */
export function validateLocation(location: Partial<PostgresLocation>): void {
  validateOptions("postgresMigration", location, { schema: schemaRule, prefix: prefixRule });
}

export function resolveLocation({
  schema = DEFAULT_NAME,
  prefix = DEFAULT_NAME,
}: Partial<PostgresLocation>): PostgresLocation {
  return { schema, prefix };
}
