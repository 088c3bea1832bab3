/**
 * Every error Holdfast throws, with its stable code, and what becomes of errors that nobody catches. Match by `code`: two copies
 * of the package may meet in a process.
 */

import type { LostReason, Pause, PauseReason } from "./spi/driver.ts";

/** What an error may carry besides its message. */
export interface LockErrorDetails {
  /** The keys concerned, as the caller named them. */
  readonly keys?: readonly string[];
  /** The error underneath, as the store's client threw it. */
  readonly cause?: unknown;
}

/** The base of all errors of Holdfast but the TypeErrors for wrong arguments. */
export class LockError extends Error {
  /** Stable, for programs; see the table in docs/reference/errors.md. */
  readonly code: string;
  /** The keys concerned, without the client's prefix; may be empty. */
  readonly keys: readonly string[];
  constructor(code: string, message: string, details: LockErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.code = code;
    this.keys = details.keys ?? [];
  }
}

/** Who stood in the way when a wait ended, as one look at the store's line told. Any part may be unknown. */
export interface BlockerInfo {
  /** The front holder's label. */
  readonly holder?: string;
  /** How long it has held the key, in milliseconds; where the store does not tell, how long its claim has stood. */
  readonly heldForMs?: number;
  /** How many claims stood before ours in the line of the key; local requests before ours are counted in. */
  readonly ahead?: number;
  /** The store granted nothing new to anyone: why, and for about how many milliseconds still when the wait ended. */
  readonly paused?: Pause;
}

/** Not granted within `wait`. */
export class LockTimeoutError extends LockError {
  /** Who held the key when the wait ended, if the store could still tell. */
  readonly blocked: BlockerInfo;
  constructor(message: string, blocked: BlockerInfo = {}, details?: LockErrorDetails) {
    super("LOCK_TIMEOUT", message, details);
    this.blocked = blocked;
  }
}

/**
 * The store grants nothing new to anyone for a while, so whether the keys are free is unknown: thrown by tryAcquire() and
 * with `wait: 0`. Keys that are known to be held are busy all the same.
 */
export class StorePausedError extends LockError {
  /** recovery: the server was restarted; gracePeriod: the store may have lost data. */
  readonly reason: PauseReason;
  /** About how long the pause lasts still, in milliseconds. */
  readonly remainingMs: number;
  constructor(message: string, { reason, remainingMs }: Pause, details?: LockErrorDetails) {
    super("PAUSED", message, details);
    this.reason = reason;
    this.remainingMs = remainingMs;
  }
}

/** A pause for people. */
export function describePause({ reason, remainingMs }: Pause): string {
  const reasonText = reason === "recovery" ? "recovery after a restart" : "grace period after data loss";
  return `the store grants nothing new for about ${Math.ceil(remainingMs / 1_000)} s (${reasonText})`;
}

/** The lease ended, or was taken, while we held; also the reason of `lock.signal`. */
export class LockLostError extends LockError {
  readonly reason: LostReason;
  constructor(message: string, reason: LostReason, details?: LockErrorDetails) {
    super("LOCK_LOST", message, details);
    this.reason = reason;
  }
}

/** This async flow would wait for itself. */
export class DeadlockError extends LockError {
  constructor(message: string, details?: LockErrorDetails) {
    super("LOCK_DEADLOCK", message, details);
  }
}

/** The store could not be asked and the wait is over; `cause` is what its client said. */
export class DriverError extends LockError {
  constructor(message: string, details?: LockErrorDetails) {
    super("DRIVER_FAILED", message, details);
  }
}

/** Thrown by a driver where asking again is useless: wrong credentials, wrong version, tokens that would fall. */
export class FatalDriverError extends LockError {
  constructor(message: string, details?: LockErrorDetails) {
    super("DRIVER_FATAL", message, details);
  }
}

/** Did a driver say that asking again is useless? By code: each entry of the package is built with classes of its own. */
export function isFatalError(error: unknown): boolean {
  return error instanceof Error && (error as { code?: unknown }).code === "DRIVER_FATAL";
}

/** The driver's traits exclude what was asked for; thrown before anything is sent. */
export class UnsupportedError extends LockError {
  constructor(message: string, details?: LockErrorDetails) {
    super("UNSUPPORTED", message, details);
  }
}

/** Used after `close()`. */
export class ClosedError extends LockError {
  constructor(message: string, details?: LockErrorDetails) {
    super("CLOSED", message, details);
  }
}

/** An error that nobody could be given becomes a warning of the process. `type` is for what is no Error, and so has no name. */
export function emitProcessWarning(error: unknown, type: string): void {
  process.emitWarning(error instanceof Error ? error : String(error), type);
}

/** The same listener; its faults are warnings, so that they break no lock and do not go unseen. */
export function safeListener<Args extends readonly unknown[]>(
  listener: (...args: Args) => unknown,
): (...args: Args) => void {
  return (...args) => {
    try {
      listener(...args);
    } catch (error) {
      emitProcessWarning(error, "HoldfastListenerWarning");
    }
  };
}
