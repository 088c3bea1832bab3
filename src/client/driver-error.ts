/** Wraps the errors of stores for users. */

import type { LockError } from "../errors.ts";
import { DriverError, FatalDriverError, isFatalError } from "../errors.ts";

/** Keeps a fatal error as it is; any other error becomes the cause of a DriverError. `action` begins its message. */
export function wrapDriverError(error: unknown, action: string, keys: readonly string[]): LockError {
  const message = error instanceof Error ? error.message : String(error);
  if (isFatalError(error)) {
    return error instanceof FatalDriverError ? error : new FatalDriverError(message, { keys, cause: error });
  }
  return new DriverError(`${action}: ${message}`, { keys, cause: error });
}
