/** Errors of stores are wrapped once, here, before a user sees them. */

import type { LockError } from "../errors.ts";
import { DriverError, FatalDriverError, isFatalError } from "../errors.ts";

/** What the user is told of a store's error: fatal ones as they are, others as the cause of a DriverError. */
export function wrapDriverError(error: unknown, action: string, keys: readonly string[]): LockError {
  const message = error instanceof Error ? error.message : String(error);
  if (isFatalError(error)) {
    return error instanceof FatalDriverError ? error : new FatalDriverError(message, { keys, cause: error });
  }
  return new DriverError(`${action}: ${message}`, { keys, cause: error });
}
