/** The options of fence() and of what creates its table. */

import { prefixRule } from "../drivers/sql/schema.ts";
import type { OptionRules } from "../util/validate.ts";
import { booleanRule, validateOptions } from "../util/validate.ts";
import { dialectRule } from "./handles.ts";
import type { SqlDialect } from "./types.ts";

/** Where the table is. Every program that fences the same data must use the same table. */
export interface TableOptions {
  /** Begins the name of the table. Lower-case letters, digits and underscores, at most 32. Default "holdfast". */
  readonly prefix?: string;
  /** The schema of the table; the database on MariaDB and MySQL. Default: that of the connection. */
  readonly schema?: string;
}

/** Options of fence(). */
export interface FenceOptions extends TableOptions {
  /** Required only if the handle does not show its dialect. */
  readonly dialect?: SqlDialect;
  /**
   * On PostgreSQL and MariaDB: the database ends this transaction when it has been idle for longer than the rest of the
   * lease, so that a holder that has stopped does not block the next one. A shorter time-out of yours stays. false: no
   * time-out is set. Default true.
   */
  readonly idleTimeout?: boolean;
}

const schemaRule = (value: unknown): string | null =>
  typeof value === "string" && /^[^\0?$]{1,63}$/.test(value)
    ? null
    : "a name of 1 to 63 characters without question and dollar signs";

const TABLE_RULES: OptionRules<TableOptions> = { prefix: prefixRule, schema: schemaRule };

const FENCE_RULES: OptionRules<FenceOptions> = {
  ...TABLE_RULES,
  dialect: dialectRule,
  idleTimeout: booleanRule,
};

/** @throws TypeError */
export function validateTableOptions(subject: string, options: TableOptions): void {
  validateOptions(subject, options, TABLE_RULES);
}

/** @throws TypeError */
export function validateFenceOptions(options: FenceOptions): void {
  validateOptions("fence", options, FENCE_RULES);
}
