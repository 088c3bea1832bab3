/** The options of the SQLite driver. */

import { describeValue } from "../../../util/duration.ts";
import type { OptionRules } from "../../../util/validate.ts";
import { validateOptions } from "../../../util/validate.ts";
import { warningNamesRule } from "../../warnings.ts";
import type { SqlOptions } from "../options.ts";
import { SQL_OPTION_RULES } from "../options.ts";

/** The warnings of open(): the names that `silenceWarnings` takes and `holdfast doctor` shows. */
const WARNING_NAMES = ["file", "mode", "journal", "durability", "guardDataLoss"] as const;

/** The name of a warning. */
export type SqliteWarning = (typeof WARNING_NAMES)[number];

/** Options of `sqlite()`. */
export interface SqliteOptions extends SqlOptions {
  /**
   * Warnings that `open()` leaves out, by the names that `holdfast doctor` shows: "file" (in memory), "mode" (other
   * users may read it), "journal", "durability". Default: none.
   */
  readonly silenceWarnings?: readonly SqliteWarning[];
}

const OPTION_RULES: OptionRules<SqliteOptions> = {
  ...SQL_OPTION_RULES,
  silenceWarnings: warningNamesRule(WARNING_NAMES),
};

/** @throws TypeError naming the invalid option */
export function validateSqliteOptions(options: SqliteOptions): void {
  validateOptions("sqlite", options, OPTION_RULES);
}

/** @throws TypeError if it is not the path of a file */
export function validatePath(path: string): void {
  if (path === "" || path.includes("\0"))
    throw new TypeError(`database must be the path of a file, not ${describeValue(path)}`);
  if (path === ":memory:" || path.startsWith("file:"))
    throw new TypeError(
      `database must be the path of a file, not ${describeValue(path)}: locks of one process need memory() only`,
    );
}
