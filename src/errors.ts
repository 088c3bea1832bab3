/**
 * Every error Holdfast throws, with its stable code, and how errors without a caller are reported. A process may load several
 * copies of the package, each with its own classes: holdfast/testing is one. So errors are matched by `code`, also by `instanceof`.
 */

/** How a claim ended, if the store still knows. maxHold: it was held longer than the store allows. */
export type EndReason = "expired" | "released" | "revoked" | "maxHold";

/** Why a lock was lost: how its claim ended, or "unknown" if the store has no record of the claim. */
export type LostReason = EndReason | "unknown";

/**
 * Why a store is paused. recovery: it was restarted, and its clients are reporting the claims they hold.
 * gracePeriod: it may have lost data, and waits until every earlier grant has certainly ended.
 */
export type PauseReason = "recovery" | "gracePeriod";

/** A time in which a store grants nothing new to any client. */
export interface Pause {
  readonly reason: PauseReason;
  /** About how much longer it lasts, in milliseconds. It may end sooner. */
  readonly remainingMs: number;
}

/** The optional fields of an error. */
export interface LockErrorDetails {
  /** The affected keys, without the client's prefix. */
  readonly keys?: readonly string[];
  /** The original error of the store's client. */
  readonly cause?: unknown;
}

/** The base class of all Holdfast errors. Wrong arguments throw a TypeError instead. */
export class LockError extends Error {
  /** True also for an error of another copy of the package: of any class with the same code. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    // biome-ignore lint/complexity/noThisInStatic: a derived class inherits it; and the bundler renames a class that names itself
    return isInstance(this, value);
  }

  /** A stable code for programs; docs/reference/errors.md lists all. */
  readonly code: string;
  /** The affected keys, without the client's prefix; may be empty. */
  readonly keys: readonly string[];
  constructor(code: string, message: string, details: LockErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    // our own classes have theirs as text, since minifiers rename classes
    this.name = new.target.name;
    this.code = code;
    this.keys = details.keys ?? [];
  }

  /**
   * For JSON.stringify() and loggers: name, message, code, keys and the fields of the class, tokens as text, and the message
   * of the cause. Only what structuredClone() can copy, which drops the code of an Error itself.
   */
  toJSON(): Record<string, unknown> {
    const fields = Object.entries(this).map(([name, value]) => [
      name,
      typeof value === "bigint" ? String(value) : value,
    ]);
    return {
      ...Object.fromEntries(fields),
      message: this.message,
      ...(this.cause !== undefined && { cause: this.cause instanceof Error ? this.cause.message : String(this.cause) }),
    };
  }
}

/** What blocked a request when its wait ended, read from the store's queue once. Every field may be unknown. */
export interface BlockerInfo {
  /** The label of the first holder in the queue. */
  readonly holder?: string;
  /** How long it has held the key, in milliseconds. If the store does not know, the age of its claim. */
  readonly heldForMs?: number;
  /** How many claims were ahead in the key's queue, plus the local requests ahead of this one. */
  readonly ahead?: number;
  /** Set if the store was granting nothing new when the wait ended: the reason, and about how long it would last. */
  readonly paused?: Pause;
}

/** The lock was not granted within `wait`. */
export class LockTimeoutError extends LockError {
  /** The holder and the queue when the wait ended, as far as the store could be asked in time. */
  readonly blocked: BlockerInfo;
  constructor(message: string, blocked: BlockerInfo = {}, details?: LockErrorDetails) {
    super("LOCK_TIMEOUT", message, details);
    this.name = "LockTimeoutError";
    this.blocked = blocked;
  }
}

/**
 * The store is paused and grants nothing new, so it is unknown whether the keys are free. Thrown by tryAcquire() and
 * with `wait: 0`. Keys that are known to be held are reported as busy even during a pause.
 */
export class StorePausedError extends LockError {
  /** recovery: the server was restarted; gracePeriod: the store may have lost data. */
  readonly reason: PauseReason;
  /** About how much longer the pause lasts, in milliseconds. */
  readonly remainingMs: number;
  constructor(message: string, { reason, remainingMs }: Pause, details?: LockErrorDetails) {
    super("LOCK_STORE_PAUSED", message, details);
    this.name = "StorePausedError";
    this.reason = reason;
    this.remainingMs = remainingMs;
  }
}

/** Describes a pause in a message. */
export function describePause({ reason, remainingMs }: Pause): string {
  const reasonText = reason === "recovery" ? "recovery after a restart" : "grace period after data loss";
  return `the store grants nothing new for about ${Math.ceil(remainingMs / 1_000)} s (${reasonText})`;
}

/** The optional fields of a LockLostError. */
export interface LockLostErrorDetails extends LockErrorDetails {
  readonly token?: bigint | undefined;
}

/** A held lock was lost: its lease expired or was revoked. Also the abort reason of `lock.signal`. */
export class LockLostError extends LockError {
  readonly reason: LostReason;
  /** The token of the lock; undefined if the store has none, or if the lock was not held here. */
  readonly token: bigint | undefined;
  constructor(message: string, reason: LostReason, details?: LockLostErrorDetails) {
    super("LOCK_LOST", message, details);
    this.name = "LockLostError";
    this.reason = reason;
    this.token = details?.token;
  }
}

/** Why a lock is not held any more, in a message. */
export const LOSS_TEXTS: Readonly<Record<LostReason, string>> = {
  expired: "its lease ended before a renewal succeeded",
  released: "it was released",
  revoked: "it was revoked",
  maxHold: "it was held longer than maxHold allows",
  unknown: "the store has no record of it",
};

/** The error by which a holder learns of the loss. */
export function lockLostError(reason: LostReason, keys: readonly string[], token?: bigint): LockLostError {
  return new LockLostError(`lost the lock on ${formatKeys(keys)}: ${LOSS_TEXTS[reason]}`, reason, { keys, token });
}

/** The acquire would wait for a lock that its own async flow holds. */
export class DeadlockError extends LockError {
  constructor(message: string, details?: LockErrorDetails) {
    super("LOCK_DEADLOCK", message, details);
    this.name = "DeadlockError";
  }
}

/** The store could not be reached before the wait ended; `cause` is the error of its client. */
export class StoreError extends LockError {
  constructor(message: string, details?: LockErrorDetails) {
    super("LOCK_STORE_FAILED", message, details);
    this.name = "StoreError";
  }
}

/** The store refused, or cannot be used, and a retry cannot succeed: wrong credentials, wrong version, tokens that would decrease. */
export class StoreRefusedError extends LockError {
  constructor(message: string, details?: LockErrorDetails) {
    super("LOCK_STORE_REFUSED", message, details);
    this.name = "StoreRefusedError";
  }
}

/** Is this an error that a retry cannot mend? Compares the code, since each entry of the package has its own classes. */
export function isFatalError(error: unknown): boolean {
  return error instanceof Error && (error as { code?: unknown }).code === "LOCK_STORE_REFUSED";
}

/** Keeps a fatal error as it is; any other error becomes the cause of a StoreError. `action` begins its message. */
export function wrapStoreError(error: unknown, action: string, keys: readonly string[]): LockError {
  const message = error instanceof Error ? error.message : String(error);
  if (isFatalError(error)) {
    // one of another copy, such as the entry of a driver, does not know the keys
    return isOwnInstance(StoreRefusedError, error) ? error : new StoreRefusedError(message, { keys, cause: error });
  }
  return new StoreError(`${action}: ${message}`, { keys, cause: error });
}

/** The driver does not support the request, by its traits. Thrown before anything is sent. */
export class UnsupportedError extends LockError {
  constructor(message: string, details?: LockErrorDetails) {
    super("LOCK_UNSUPPORTED", message, details);
    this.name = "UnsupportedError";
  }
}

/** The client was used after `close()`. */
export class ClosedError extends LockError {
  constructor(message: string, details?: LockErrorDetails) {
    super("LOCK_CLOSED", message, details);
    this.name = "ClosedError";
  }
}

/** Formats keys for a message: at most three, each of at most 60 characters. */
export function formatKeys(keys: readonly string[]): string {
  const listed = keys.slice(0, 3).map((key) => JSON.stringify(key.length > 60 ? `${key.slice(0, 60)}…` : key));
  return keys.length > 3 ? `${listed.join(", ")} and ${keys.length - 3} more` : listed.join(", ");
}

/** Emits an error without a caller as a process warning. `type` names the warning if `error` is not an Error. */
export function emitProcessWarning(error: unknown, type: string): void {
  process.emitWarning(error instanceof Error ? error : String(error), type);
}

/** Wraps a user's listener: an exception or a rejection becomes a process warning, so that it neither breaks a lock nor gets lost. */
export function safeListener<Args extends readonly unknown[]>(
  listener: (...args: Args) => unknown,
): (...args: Args) => void {
  const warn = (error: unknown): void => emitProcessWarning(error, "HoldfastListenerWarning");
  return (...args) => {
    try {
      const result = listener(...args);
      if (result instanceof Promise) result.catch(warn);
    } catch (error) {
      warn(error);
    }
  };
}

/** By them `instanceof` finds errors of other copies of the package. A class that a program derives has none. */
const CODES: ReadonlyMap<unknown, string> = new Map<unknown, string>([
  [LockTimeoutError, "LOCK_TIMEOUT"],
  [StorePausedError, "LOCK_STORE_PAUSED"],
  [LockLostError, "LOCK_LOST"],
  [DeadlockError, "LOCK_DEADLOCK"],
  [StoreError, "LOCK_STORE_FAILED"],
  [StoreRefusedError, "LOCK_STORE_REFUSED"],
  [UnsupportedError, "LOCK_UNSUPPORTED"],
  [ClosedError, "LOCK_CLOSED"],
]);

function isInstance(errorClass: typeof LockError, value: unknown): boolean {
  if (isOwnInstance(errorClass, value)) return true;
  if (!(value instanceof Error)) return false;
  const { code, keys } = value as Partial<LockError>;
  if (typeof code !== "string" || !Array.isArray(keys)) return false;
  return errorClass === LockError || code === CODES.get(errorClass);
}

/** Has this copy of the package created the error? */
function isOwnInstance<T>(errorClass: abstract new (...args: never[]) => T, value: unknown): value is T {
  return Function.prototype[Symbol.hasInstance].call(errorClass, value);
}
