/** The options that all drivers of advisory locks have. */

import type { Clock } from "../../../util/clock.ts";
import type { Duration } from "../../../util/duration.ts";
import type { OptionRules } from "../../../util/validate.ts";
import {
  clockRule,
  countRule,
  functionRule,
  millisecondsRule,
  stringRule,
  timeoutRule,
} from "../../../util/validate.ts";

/** Options of every driver of advisory locks. */
export interface AdvisoryOptions {
  /**
   * How long a lock lasts when its process or its connection is silent, in milliseconds: the holder counts it as lost a
   * little earlier, and the server then ends the session, as far as it can. Default 30 s, at least 1 s.
   */
  readonly sessionMs?: number;
  /**
   * The most connections, besides the shared one, on which claims wait and locks that were waited for are held. Further
   * waiting claims ask again every 250 ms. Default 16.
   */
  readonly maxWaitConnections?: number;
  /** How long `open()` tries to reach the database. Default 5 s. */
  readonly connectTimeout?: Duration;
  /** Receives warnings of `open()` about what endangers locks. Default: a process warning. */
  readonly warn?: (warning: string) => void;
  /** Warnings that `open()` leaves out, by the names that `holdfast doctor` shows. Default: none. */
  readonly silenceWarnings?: readonly string[];
  /** The label of claims that have none of their own. */
  readonly label?: string;
  /** The clock of timeouts, for tests. */
  readonly clock?: Clock;
}

/** The limits that were not set. */
export const DEFAULT_SESSION_MS = 30_000;
export const DEFAULT_MAX_WAIT_CONNECTIONS = 16;

/** Servers count in whole seconds. */
const MIN_SESSION_MS = 1_000;
/** MariaDB's longest wait_timeout on all its platforms, in milliseconds. */
const MAX_SESSION_MS = 2_147_483_000;

/** The rules of all options but `silenceWarnings`, whose names differ (warningNamesRule). */
export const ADVISORY_OPTION_RULES: Omit<OptionRules<AdvisoryOptions>, "silenceWarnings"> = {
  sessionMs: millisecondsRule(MIN_SESSION_MS, MAX_SESSION_MS),
  maxWaitConnections: countRule(1_000),
  connectTimeout: timeoutRule("connectTimeout"),
  warn: functionRule,
  label: stringRule,
  clock: clockRule,
};
