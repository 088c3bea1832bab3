/** What asking again does not change is fatal to whoever asked. */

import { FatalDriverError } from "../../errors.ts";
import { isPermanent } from "./client/errors.ts";

/** The error as the core is told it: a FatalDriverError where the servers will not let us for good. */
export function toFatalError(error: unknown): unknown {
  return isPermanent(error) ? new FatalDriverError((error as Error).message, { cause: error }) : error;
}
