/** The options of the document driver, validated first, since they may come from JavaScript. */

import type { Clock } from "../../util/clock.ts";
import type { Duration } from "../../util/duration.ts";
import type { OptionRules } from "../../util/validate.ts";
import { clockRule, countRule, millisecondsRule, timeoutRule } from "../../util/validate.ts";

/** How the locks are kept in the store. */
export interface DocumentDriverOptions {
  /**
   * Over how many documents the keys are spread: of the processes that use one document, one writes after the other. It is decided when
   * the store is first used, and compared from then on. Default: as many as the store has, else 16.
   */
  readonly documents?: number;
  /** How often the first waiting claim of a queue reads, and the others more seldom, if the store has no watch(). Default 1,000. */
  readonly pollMs?: number;
  /** How long a call to the store may take. Default 2,000. */
  readonly callTimeoutMs?: number;
  /** How long `open()` tries to reach the store. Default 5 s. */
  readonly connectTimeout?: Duration;
  /** Added to every token: for locks that were moved here from a store with higher tokens. Default 0n. */
  readonly tokenBase?: bigint;
  /** The clock, for tests. */
  readonly clock?: Clock;
}

const MAX_DOCUMENTS = 1_024;
/** Tokens must be exact as numbers, with room for those of the store itself. */
const MAX_TOKEN_BASE = 2n ** 52n;

export const DOCUMENT_OPTION_RULES: OptionRules<DocumentDriverOptions> = {
  documents: countRule(MAX_DOCUMENTS),
  pollMs: millisecondsRule(),
  callTimeoutMs: millisecondsRule(),
  connectTimeout: timeoutRule("connectTimeout"),
  tokenBase: (value) =>
    typeof value === "bigint" && value >= 0n && value < MAX_TOKEN_BASE
      ? null
      : `a bigint from 0n to ${MAX_TOKEN_BASE}n`,
  clock: clockRule,
};
