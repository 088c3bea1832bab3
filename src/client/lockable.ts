/** The three verbs, bound to what is to be locked. */

import type { Acquirer } from "./acquirer.ts";
import type { Lock, LockHandle } from "./lock.ts";
import type { LockTarget } from "./lock-target.ts";
import type { AcquireOptions, AcquireSettings, ClientSettings, TryOptions } from "./options.ts";
import { parseAcquireOptions } from "./options.ts";

/** Something that can be locked: a fixed set of holds with three verbs. */
export interface Lockable<Extra = unknown> {
  /**
   * Waits for the lock.
   * @throws TypeError for wrong options; LockTimeoutError after `wait`; the signal's reason on abort; DeadlockError;
   * DriverError if the store could not be asked until the wait was over; FatalDriverError; UnsupportedError; ClosedError
   */
  acquire(options?: AcquireOptions & Extra): Promise<Lock>;
  /** The lock if it is free now, else null; asks once. @throws as acquire(), but never LockTimeoutError */
  tryAcquire(options?: TryOptions & Extra): Promise<Lock | null>;
  /**
   * Acquires, runs fn in an async context in which nested requests join, and releases when fn has settled.
   * @throws what fn throws, always; else LockLostError if the lock was lost on the way; and as acquire()
   */
  using<T>(fn: (lock: Lock) => T | Promise<T>): Promise<T>;
  using<T>(options: AcquireOptions & Extra, fn: (lock: Lock) => T | Promise<T>): Promise<T>;
}

/** What a Lockable needs of its client. */
export interface LockableClient {
  readonly settings: ClientSettings;
  /** Ready to be asked. @throws ClosedError, DriverError */
  getAcquirer(): Acquirer | Promise<Acquirer>;
}

/** What is locked: always the same, or made of the call's own options (a semaphore's permits). */
type TargetSource<Extra> = LockTarget | ((options: Extra | undefined) => LockTarget);

/** A Lockable that remembers its target, so that all() can take it. */
export class BoundLockable<Extra> implements Lockable<Extra> {
  readonly #client: LockableClient;
  readonly #targetSource: TargetSource<Extra>;
  readonly #extraOption: string | undefined;

  /** @param extraOption an option that only the target is made of */
  constructor(client: LockableClient, targetSource: TargetSource<Extra>, extraOption?: string) {
    this.#client = client;
    this.#targetSource = targetSource;
    this.#extraOption = extraOption;
  }

  target(options?: Extra): LockTarget {
    return typeof this.#targetSource === "function" ? this.#targetSource(options) : this.#targetSource;
  }

  acquire(options?: AcquireOptions & Extra): Promise<Lock> {
    return this.#acquire(options, false) as Promise<Lock>;
  }

  tryAcquire(options?: TryOptions & Extra): Promise<Lock | null> {
    return this.#acquire(options, true);
  }

  async using<T>(
    first: (AcquireOptions & Extra) | ((lock: Lock) => T | Promise<T>),
    second?: (lock: Lock) => T | Promise<T>,
  ): Promise<T> {
    const fn = typeof first === "function" ? (first as (lock: Lock) => T | Promise<T>) : second;
    if (typeof fn !== "function") throw new TypeError("fn must be a function");
    const lock = await this.#acquire(typeof first === "function" ? undefined : first, false);
    return runWithLock(lock as LockHandle, fn);
  }

  /** No async function: an uncontended acquire is to cost one promise. */
  #acquire(options: (AcquireOptions & Extra) | undefined, isTry: boolean): Promise<LockHandle | null> {
    try {
      const target = this.target(options);
      const settings = this.#resolveSettings(options, isTry);
      const ready = this.#client.getAcquirer();
      if (ready instanceof Promise) return ready.then((acquirer) => acquirer.acquire(target, settings, isTry));
      return ready.acquire(target, settings, isTry);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  #resolveSettings(options: AcquireOptions | undefined, isTry: boolean): AcquireSettings {
    const { settings } = this.#client;
    const acquireSettings =
      options === undefined ? settings : parseAcquireOptions(options, settings, isTry, this.#extraOption);
    return isTry ? { ...acquireSettings, waitMs: 0 } : acquireSettings;
  }
}

/** The body's own error always wins; a loss is told even if the body succeeded. */
async function runWithLock<T>(lock: LockHandle, fn: (lock: Lock) => T | Promise<T>): Promise<T> {
  let result: T;
  try {
    result = await lock.run(() => fn(lock));
  } catch (error) {
    await lock.release();
    throw error;
  }
  if (!(await lock.release())) throw lock.releaseLoss();
  return result;
}
