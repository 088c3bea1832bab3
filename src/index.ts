/** The public surface of holdfast. */

export type { RevokeOptions } from "./client/admin.ts";
export { closeOnSignal } from "./client/close-on-signal.ts";
export { connect } from "./client/connect.ts";
export type { FailedOutcome, LockEvent, LockEvents } from "./client/events.ts";
export type { Interceptor } from "./client/interceptors.ts";
export type { Lock, LockGrant } from "./client/lock.ts";
export type { Lockable } from "./client/locks.ts";
export { createLocks, intercept, type Locks } from "./client/locks.ts";
export type { ClientLogger } from "./client/logger.ts";
export type {
  AcquireOptions,
  ConnectOptions,
  DetachOptions,
  LockOrder,
  LocksOptions,
  TryOptions,
} from "./client/options.ts";
export {
  type BlockerInfo,
  ClosedError,
  DeadlockError,
  type EndReason,
  LockError,
  type LockErrorDetails,
  LockLostError,
  type LockLostErrorDetails,
  LockTimeoutError,
  type LostReason,
  type Pause,
  type PauseReason,
  StoreError,
  StorePausedError,
  StoreRefusedError,
  UnsupportedError,
} from "./errors.ts";
export type { Election, LeaderOptions, ObserveOptions } from "./leader/election.ts";
export type { Leader } from "./leader/leader.ts";
export type { Term } from "./leader/term.ts";
export type { ClaimInfo, LockInfo, LockMode } from "./spi/claim-info.ts";
export type { Driver, Traits } from "./spi/driver.ts";
export type { Clock, Timer } from "./util/clock.ts";
export type { Duration } from "./util/duration.ts";
export { currentLock, withoutCurrentLock } from "./wrapping/current-lock.ts";
export { type LockedDecorator, type LockedOptions, locked } from "./wrapping/locked.ts";
export type { KeySource } from "./wrapping/locked-call.ts";
export type { WrapOptions } from "./wrapping/wrap.ts";
