/** The options of the driver for named locks of MariaDB and MySQL. */

import { functionRule, validateOptions } from "../../../util/validate.ts";
import { warningNamesRule } from "../../warnings.ts";
import type { AdvisoryOptions } from "../advisory/options.ts";
import { ADVISORY_OPTION_RULES } from "../advisory/options.ts";

/** Options of `mysqlAdvisory()`. */
export interface MysqlAdvisoryOptions extends AdvisoryOptions {
  /**
   * The name of a key's lock, as in GET_LOCK: 1 to 64 printable characters of ASCII; names that differ only in case
   * count as one. For systems that use names already. Default: "holdfast:" and the first 32 hexadecimal digits of the
   * key's SHA-256.
   */
  readonly keyToName?: (key: string) => string;
  /** Warnings that `open()` leaves out, by the names that `holdfast doctor` shows. Default: none. */
  readonly silenceWarnings?: readonly MysqlAdvisoryWarning[];
}

const WARNING_NAMES = ["version", "role", "cluster", "connections"] as const;

/** The name of a warning: what `silenceWarnings` takes and `holdfast doctor` shows. */
export type MysqlAdvisoryWarning = (typeof WARNING_NAMES)[number];

/** @throws TypeError naming the invalid option */
export function validateMysqlAdvisoryOptions(options: MysqlAdvisoryOptions): void {
  validateOptions("mysqlAdvisory", options, {
    ...ADVISORY_OPTION_RULES,
    keyToName: functionRule,
    silenceWarnings: warningNamesRule(WARNING_NAMES),
  });
}
