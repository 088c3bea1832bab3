/** holdfast/optimistic: changes of data with a version, without a lock. */

export type { SqlDialect } from "../fencing/handles.ts";
export type { OptimisticErrorDetails } from "./errors.ts";
export { OutcomeUnknownError, RowGoneError, VersionConflictError } from "./errors.ts";
export type {
  Change,
  OptimisticAttempt,
  OptimisticOptions,
  OptimisticResult,
  Stop,
  StoreFailure,
  VersionedStore,
} from "./optimistic.ts";
export { optimistic, stop } from "./optimistic.ts";
export type { VersionedRowOptions } from "./versioned-row.ts";
export { versionedRow } from "./versioned-row.ts";
