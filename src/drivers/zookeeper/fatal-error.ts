/** Turns permanent server errors into fatal driver errors. */

import { FatalDriverError } from "../../errors.ts";
import { isPermanent } from "./client/errors.ts";

/** The error to report to the client: a FatalDriverError if a retry cannot help. */
export function toFatalError(error: unknown): unknown {
  return isPermanent(error) ? new FatalDriverError((error as Error).message, { cause: error }) : error;
}
