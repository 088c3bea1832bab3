/** The options of the driver for advisory locks of PostgreSQL. */

import { functionRule, validateOptions } from "../../../util/validate.ts";
import { warningNamesRule } from "../../warnings.ts";
import type { AdvisoryOptions } from "../advisory/options.ts";
import { ADVISORY_OPTION_RULES } from "../advisory/options.ts";

/** Options of `postgresAdvisory()`. */
export interface PostgresAdvisoryOptions extends AdvisoryOptions {
  /**
   * The advisory lock of a key: a bigint of 64 bits, or a pair of integers of 32 bits, as in pg_advisory_lock(bigint)
   * and pg_advisory_lock(int, int). For systems that use numbers already. Default: the first 64 bits of the key's
   * SHA-256.
   */
  readonly keyToLock?: (key: string) => bigint | readonly [number, number];
  /** Warnings that `open()` leaves out, by the names that `holdfast doctor` shows. Default: none. */
  readonly silenceWarnings?: readonly PostgresAdvisoryWarning[];
}

const WARNING_NAMES = ["version", "role", "lease", "connections", "locks"] as const;

/** The name of a warning: what `silenceWarnings` takes and `holdfast doctor` shows. */
export type PostgresAdvisoryWarning = (typeof WARNING_NAMES)[number];

/** @throws TypeError naming the invalid option */
export function validatePostgresAdvisoryOptions(options: PostgresAdvisoryOptions): void {
  validateOptions("postgresAdvisory", options, {
    ...ADVISORY_OPTION_RULES,
    keyToLock: functionRule,
    silenceWarnings: warningNamesRule(WARNING_NAMES),
  });
}
