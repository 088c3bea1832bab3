/** The options that all SQL drivers have. */

import type { Clock } from "../../util/clock.ts";
import type { Duration } from "../../util/duration.ts";
import type { OptionRules } from "../../util/validate.ts";
import {
  booleanRule,
  clockRule,
  functionRule,
  millisecondsRule,
  stringRule,
  timeoutRule,
} from "../../util/validate.ts";
import type { GuardDataLossOptions } from "../data-loss-guard.ts";
import { guardDataLossRule } from "../data-loss-guard.ts";
import { prefixRule } from "./schema.ts";

/** Options of every SQL driver. */
export interface SqlOptions {
  /**
   * Begins the names of tables, functions and channels. Clients with the same prefix, in the same database and schema,
   * see each other's locks. Lower-case letters, digits and underscores, at most 32. Default "holdfast".
   */
  readonly prefix?: string;
  /**
   * Create the tables and functions in `open()` if they are missing. If false, `open()` only verifies them, and the
   * user needs fewer rights. Default true.
   */
  readonly createTables?: boolean;
  /** How long `open()` tries to reach the database. Default 5 s. */
  readonly connectTimeout?: Duration;
  /**
   * Timeout of a call in milliseconds, the wait for a connection of the pool included. Its outcome is then unknown, and
   * a retry finds it out. Default 5 s.
   */
  readonly commandTimeoutMs?: number;
  /**
   * After a loss of data (a restored backup, a promoted standby that lacks commits, tables or a file created again),
   * grant nothing new for the longest ttl, while holders restore their claims. So no lock of a live holder is granted
   * to another client. A restart of a database server, and the first use of a prefix, wait as long, too. All clients of
   * a prefix need the same setting. Default false.
   */
  readonly guardDataLoss?: boolean | GuardDataLossOptions;
  /**
   * Receives warnings of `open()` about what endangers locks, and about locks that the database lost. Default: a
   * process warning.
   */
  readonly warn?: (warning: string) => void;
  /** Warnings that `open()` leaves out, by the names that `holdfast doctor` shows. Default: none. */
  readonly silenceWarnings?: readonly string[];
  /** The label of claims that have none of their own. */
  readonly label?: string;
  /** The clock of timeouts, for tests. Leases and tokens are by the database's clock. */
  readonly clock?: Clock;
}

/** A timeout that was not set. */
export const DEFAULT_COMMAND_TIMEOUT_MS = 5_000;

/** The rules of all options but `silenceWarnings`, whose names differ (warningNamesRule). */
export const SQL_OPTION_RULES: Omit<OptionRules<SqlOptions>, "silenceWarnings"> = {
  prefix: prefixRule,
  createTables: booleanRule,
  connectTimeout: timeoutRule("connectTimeout"),
  commandTimeoutMs: millisecondsRule(),
  guardDataLoss: guardDataLossRule,
  warn: functionRule,
  label: stringRule,
  clock: clockRule,
};
