/** The errors of optimistic(). Match them by `code`: each entry of the package has its own classes. */

import type { LockErrorDetails } from "../errors.ts";
import { LockError } from "../errors.ts";

/** What every error of optimistic() has besides its code. */
export interface OptimisticErrorDetails extends LockErrorDetails {
  /** How many attempts were made, the last one included. */
  readonly attempts: number;
}

/** The version moved in every attempt, or the time was over. Nothing was written. */
export class VersionConflictError extends LockError {
  readonly attempts: number;
  constructor(message: string, details: OptimisticErrorDetails) {
    super("LOCK_VERSION_CONFLICT", message, details);
    this.name = "VersionConflictError";
    this.attempts = details.attempts;
  }
}

/** There is no such row, or it was deleted between two attempts. Nothing was written. */
export class RowGoneError extends LockError {
  readonly attempts: number;
  constructor(message: string, details: OptimisticErrorDetails) {
    super("LOCK_ROW_GONE", message, details);
    this.name = "RowGoneError";
    this.attempts = details.attempts;
  }
}

/**
 * The answer to the write was lost, with the connection as a rule: the change may have been written or not. It is not
 * repeated, since it would then be written twice. `cause` is the error of the store's client.
 */
export class OutcomeUnknownError extends LockError {
  readonly attempts: number;
  constructor(message: string, details: OptimisticErrorDetails) {
    super("LOCK_OUTCOME_UNKNOWN", message, details);
    this.name = "OutcomeUnknownError";
    this.attempts = details.attempts;
  }
}
